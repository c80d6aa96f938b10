
# `ps -p` knows no threads. For threads among our kdamonds, this prints their rows of `ps -L`.

# Prints the numbers after -p in one of its spellings.
ids() {
    while [ $# -gt 0 ]; do
        case "$1" in
        -p | --pid | -q | --quick-pid | p | q)
            echo "$2"
            [ $# -eq 1 ] || shift
            ;;
        --pid=* | --quick-pid=*) echo "${1#*=}" ;;
        -[pq][0-9]*) echo "${1#-?}" ;;
        esac
        shift
    done | tr ', \n' '   '
}

ids=$(ids "$@")
[ -n "$ids" ] || next ps "$@"
all=" $(kdamonds | cut -d ' ' -f 1 | tr '\n' ' ')" ours='' others=''
for id in $ids; do
    case "$all" in
    *" $id "*) ours="$ours $id" ;;
    *) others="$others $id" ;;
    esac
done
[ -n "$ours" ] || next ps "$@"
usage='use ps -p TID [-f] [-o COLUMNS] [--no-headers]'
[ -z "$others" ] || refuse "another process ($others ) in the same list" "$usage"

# Translates the columns of a process to those of a thread: its number, and its name for a command line.
columns=''
add() {
    for column in $(echo "$1" | tr , ' '); do
        case "$column" in
        pid) column=lwp:7=PID ;;
        pid=*) column=lwp:7=${column#*=} ;;
        args | cmd | command) column=comm=CMD ;;
        args=* | cmd=* | command=*) column=comm=${column#*=} ;;
        esac
        columns="$columns -o $column"
    done
}

default='pid,tname=TTY,time,cmd' no_headers=''
while [ $# -gt 0 ]; do
    case "$1" in
    -p | --pid | -q | --quick-pid | p | q) shift ;;
    --pid=* | --quick-pid=* | -[pq][0-9]*) ;;
    -o | --format | o)
        add "$2"
        shift
        ;;
    -o?*) add "${1#-o}" ;;
    --format=*) add "${1#*=}" ;;
    -f) default='user=UID,pid,ppid,c,stime,tname=TTY,time,cmd' ;;
    -L | -w | -ww) ;;
    --no-headers | --no-heading | h) no_headers=--no-headers ;;
    *) refuse "$1" "$usage" ;;
    esac
    shift
done
[ -n "$columns" ] || add "$default"
process=$(sed -n 's/^Tgid:[[:blank:]]*//p' "/proc/${ours##* }/status")
# The first column serves to select the rows, and is cut off.
(next ps -L -p "$process" -o lwp:9= $columns $no_headers) | awk -v ours="$ours " '
    { id = substr($0, 1, 9) + 0 }
    id == 0 || index(ours, " " id " ") { print substr($0, 11) }'
