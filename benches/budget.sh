#!/usr/bin/env bash
# Is the CPU budget (1 % of one CPU by default) kept, and how exact is the picture it buys? Targets of 64 MiB to 8 GiB
# (SIZES, in MiB) of which an eighth is touched all the time, and 200 processes of 4 MiB (PROCESSES; 0: none), of which
# one says what is true. Each is watched for a minute (SECONDS_EACH), large ones for ten seconds a GiB longer, since their
# first look at every page takes that, and many processes three times as long, since a round over them takes some twenty
# seconds. Twelve minutes in all. As root.
. "$(dirname "$0")/lib.bash"
. benches/eighth.bash
need_built "$thermo" "$thermo_lab"
each=${SECONDS_EACH:-60}
sizes=${SIZES:-64 1024 4096 8192}
processes=${PROCESSES:-200}

# Watches processes and prints a row; the truth of one is judged.
watch() { # NAME SECONDS PID...
    local name=$1 seconds=$2 pids=()
    shift 2
    for pid in "$@"; do pids+=(--pid "$pid"); done
    if record_and_judge budget "$seconds" "$work/truth" "${pids[@]}"; then
        python3 benches/budget.py "$name" "$work/budget.info.json" "$work/budget.judged.json"
    else
        echo "$name: nothing could be judged"
    fi
}

# Starts so many processes of 4 MiB and waits until all are at it; sets many.
begin_many() { # COUNT
    rm -f "$work/many.stdin" "$work/many"
    mkfifo "$work/many.stdin"
    python3 benches/many.py "$1" 4 <"$work/many.stdin" >"$work/many" &
    echo "$!" >>"$work/started"
    # Held open: it ends when this script does.
    exec 9>"$work/many.stdin"
    until grep -q '^all$' "$work/many"; do
        kill -0 "$!" || exit 1
        sleep 0.2
    done
    mapfile -t many < <(grep -v all "$work/many")
}

measure() {
    echo "target         monitoring  from 3 s  of budget    all CPU   memory   way                                      judged  hot found    right edge, pages  unknown"
    local mib
    for mib in $sizes; do
        begin_target "$mib" "$work/truth"
        sleep $((3 + mib / 500))
        watch "$mib MiB" $((each + mib / 100)) "$target"
        end_all
    done
    [ "$processes" -gt 0 ] || return 0
    begin_many $((processes - 1))
    begin_target 4 "$work/truth"
    watch "$processes x 4 MiB" $((3 * each)) "$target" "${many[@]}"
    exec 9>&-
    end_all
}

keep budget "The budget of 1 % of a CPU" measure
