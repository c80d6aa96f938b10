# Common part of the replacements of pgrep, pidof and ps. A kdamond of the command is a thread of thermo; the
# kernel's have nothing to do with the control files of the command.

# Runs the next program of this name in PATH.
next() {
    others=
    IFS=:
    for dir in $PATH; do
        [ "$dir" = "${0%/*}" ] || others=$others:$dir
    done
    unset IFS
    PATH=${others#:} exec "$@"
}

refuse() {
    echo "${0##*/}: $1 is not supported for a kdamond, which is a thread of thermo: $2" >&2
    exit 2
}

# Prints thread ID and name of each kdamond, the oldest first. Files have -1 or `none` if no kdamond runs.
kdamonds() {
    for file in /sys/kernel/mm/damon/admin/kdamonds/*/pid /sys/module/damon_*/parameters/kdamond_pid \
        /sys/kernel/debug/damon/kdamond_pid /sys/kernel/debug/damon/*/kdamond_pid; do
        tid=$(cat "$file" 2>/dev/null)
        [ "$tid" -gt 0 ] 2>/dev/null || continue
        stat=$(cat "/proc/$tid/stat" 2>/dev/null) || continue
        name=${stat#*\(}
        # Field 22 of proc_pid_stat(5) is the start time; the first after the name is field 3.
        set -- ${stat##*) }
        echo "${20} $tid ${name%)*}"
    done | sort -u -n -k 1,1 -k 2,2 | cut -d ' ' -f 2-
}
