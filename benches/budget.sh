#!/usr/bin/env bash
# CPU use and accuracy at the default budget of 1 % of one CPU. Targets: processes of 64 MiB to 8 GiB (SIZES,
# in MiB) with an eighth touched all the time, and 200 processes of 4 MiB (PROCESSES; 0: none), one of which
# writes a truth. Each run takes a minute (SECONDS_EACH). Large targets take ten seconds per GiB longer, for
# their first scan. Many processes take three times as long, because a scan pass over them takes about twenty
# seconds. Total: twelve minutes. Needs root.
. "$(dirname "$0")/lib.bash"
. benches/targets.bash
need_built "$thermo" "$thermo_lab"
each=${SECONDS_EACH:-60}
sizes=${SIZES:-64 1024 4096 8192}
processes=${PROCESSES:-200}

# Monitors processes and prints a row. The truth is that of the first process.
monitor() { # NAME SECONDS PID...
    local name=$1 seconds=$2 pids=()
    shift 2
    for pid in "$@"; do pids+=(--pid "$pid"); done
    if record_and_judge budget "$seconds" "$work/truth" "${pids[@]}"; then
        python3 benches/budget.py "$name" "$work/budget.info.json" "$work/budget.judged.json"
    else
        echo "$name: the recording could not be evaluated"
    fi
}

# Starts so many processes of 4 MiB and waits until all are running; sets many to their pids.
begin_many() { # COUNT
    rm -f "$work/many.stdin" "$work/many"
    mkfifo "$work/many.stdin"
    python3 benches/many_processes.py "$1" 4 <"$work/many.stdin" >"$work/many" &
    echo "$!" >>"$work/started"
    # Keep its input open: the processes end when this script ends.
    exec 9>"$work/many.stdin"
    until grep -q '^all$' "$work/many"; do
        kill -0 "$!" || exit 1
        sleep 0.2
    done
    mapfile -t many < <(grep -v all "$work/many")
}

measure() {
    printf '%-14s %12s %10s %11s %10s %11s   %-40s %9s %10s %10s %11s %9s\n' target monitoring 'from 3 s' 'of budget' \
        'total CPU' memory plan snapshots recall precision 'edge, pages' unknown
    local mib
    for mib in $sizes; do
        begin_target "$mib" "$work/truth"
        sleep $((3 + mib / 500))
        monitor "$mib MiB" $((each + mib / 100)) "$target"
        end_all
    done
    [ "$processes" -gt 0 ] || return 0
    begin_many $((processes - 1))
    begin_target 4 "$work/truth"
    monitor "$processes x 4 MiB" $((3 * each)) "$target" "${many[@]}"
    exec 9>&-
    end_all
}

keep budget "The budget of 1 % of a CPU" measure
