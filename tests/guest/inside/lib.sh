# What the guest's tests are written with. A test is a function; its name is the test's.

# What ends the test in hand, with a sentence.
fail() {
    echo "not ok $name: $*"
    exit 1
}
skip() {
    echo "SKIP $name: $*"
    exit 1
}
note() { echo "# $name: $*"; }

run_test() { # NAME
    name=$1
    (
        type "$name" >/dev/null 2>&1 || fail "there is no such test"
        "$name"
        echo "ok $name"
    )
    stop_all
}

# Emulation is slow and the host is shared: the deadline is far, and no test counts on it.
wait_until() { # WHAT COMMAND...
    local what=$1
    shift
    comes_true "$@" || fail "$what: not within two minutes: $(last_words)"
}
comes_true() { # COMMAND...
    local tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 240 ] || return 1
        sleep 0.5
    done
}

# A command with its words kept for last_words, and ended when it hangs.
thermo_says() { says thermo "$@"; }
says() { timeout 150 "$@" 2>/tmp/stderr; } # COMMAND...
last_words() { grep -v '^ *$' /tmp/stderr | tail -n 2 | tr '\r\n' '  '; }

# Starts a program with 8 MiB that are hot and, by hot-cold.cfg, 120 MiB that were touched once; sets pid. Called by another
# name where as_program says one.
start_workload() { # CONFIGURATION [OPTIONS...]
    start_touching "$@"
    wait_until "everything is touched once" phase_is_hot_only
}

# The same, ready as soon as there is some truth.
start_touching() { # CONFIGURATION [OPTIONS...]
    local configuration=$1
    shift
    rm -f /tmp/ready /tmp/truth.jsonl
    "${as_program:-thermo-lab}" workload "/$configuration" --truth /tmp/truth.jsonl "$@" >/tmp/ready 2>/tmp/workload.stderr &
    pid=$!
    to_be_stopped "$pid"
    wait_until "something was touched" test -s /tmp/truth.jsonl
}

# Where a region lies: 0xBEGIN-0xEND.
region() { # NAME
    grep -o " $1 0x[0-9a-f]*-0x[0-9a-f]*" /tmp/ready | sed "s/ $1 //"
}

# Nothing outside the hot part was touched in the last span. One range alone does not tell: regions that the kernel maps side
# by side are one, all of them, while everything is still being touched.
phase_is_hot_only() {
    local hot span
    hot=$(region hot)
    span=$(last_truth | sed -n 's/.*"ranges":\[\[\([0-9]*,[0-9]*\)\]\]}$/\1/p')
    [ -n "$hot" ] && [ -n "$span" ] && [ "${span%,*}" -ge $((${hot%-*})) ] && [ "${span#*,}" -le $((${hot#*-})) ]
}

# The last line may still be half written.
last_truth() { grep '}$' /tmp/truth.jsonl | tail -n 1; }

# No huge pages until the test ends, however it ends.
without_huge_pages() {
    echo never >/sys/kernel/mm/transparent_hugepage/enabled
    trap 'echo always >/sys/kernel/mm/transparent_hugepage/enabled' EXIT
}

# What a test starts is gone when it ends, however it ends.
to_be_stopped() { echo "$1" >>/tmp/started; }
stop_all() {
    local started
    for started in $(cat /tmp/started 2>/dev/null); do kill -KILL "$started" 2>/dev/null; done
    rm -f /tmp/started
}

# Judges a recording's last snapshot by what is told of the program.
judge() { # RECORDING
    thermo_says report regions --last --csv "$1" >/tmp/all.csv || fail "report ended with $?: $(last_words)"
    awk -F, -v pid="$pid" 'NR == 1 || $2 == pid' /tmp/all.csv >/tmp/regions.csv
    compare_with_truth
}

# Stretches ranges of the program's memory to the mappings that hold them.
whole_mappings() { # < "BEGIN END" lines
    local begin end from to rest
    while read -r begin end; do
        while IFS='- ' read -r from to rest; do
            if [ $((0x$from)) -lt "$end" ] && [ $((0x$to)) -gt "$begin" ]; then echo "$((0x$from)) $((0x$to))"; fi
        done <"/proc/$pid/maps"
    done
}

# Sets, in percent, precision and recall of the hot bytes in /tmp/regions.csv, and error: bytes wrongly said to be hot
# and wrongly not, of those that are.
compare_with_truth() {
    last_truth | sed 's/.*"ranges":\[\[//; s/\]\]}//; s/\],\[/\n/g' | tr ',' ' ' | $truth_as >/tmp/truth
    read -r precision recall error <<-RESULT
		$(awk -f /accuracy.awk /tmp/truth /tmp/regions.csv)
	RESULT
}

# Records, for longer each time, until the picture is right: how long that takes depends on the host's load.
# One look at one page takes milliseconds here, so intervals are long. least is what is wanted of precision and
# recall, in percent.
least="80 80"
# What makes of the bytes that were touched what a tracker can know.
truth_as=cat
sees_the_hot_part() { # OPTIONS OF record...
    local seconds
    for seconds in 5 10 20 40 80; do
        rm -f /tmp/seen.arrow
        thermo_says record -o /tmp/seen.arrow --duration "${seconds}s" "$@" || fail "record ended with $?: $(last_words)"
        judge /tmp/seen.arrow
        note "after $seconds s: precision $precision %, recall $recall %"
        [ "$precision" -lt "${least% *}" ] || [ "$recall" -lt "${least#* }" ] || return 0
    done
    fail "after 80 s: precision $precision %, recall $recall %; $least % are wanted"
}

status_kib() { awk -v field="$1:" '$1 == field { print $2 }' "/proc/$pid/status"; }

# Pages that the program had to get back from swap or file so far.
major_faults() { awk '{ print $12 }' "/proc/$pid/stat"; }

# The number of a field in JSON; of the last one where there are several.
number_of() { # FIELD < JSON
    grep -o "\"$1\":[0-9]*" | tail -n 1 | cut -d: -f2
}
