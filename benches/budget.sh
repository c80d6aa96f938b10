#!/usr/bin/env bash
# Is the CPU budget (1 % of one CPU by default) kept, and how exact is the picture it buys? Targets of 64 MiB to 8 GiB
# (SIZES, in MiB) of which an eighth is touched all the time, and 200 processes of 4 MiB (PROCESSES; 0: none), each watched
# for a minute (SECONDS_EACH) after it has come to rest.
. "$(dirname "$0")/lib.bash"
need_thermo
each=${SECONDS_EACH:-60}
sizes=${SIZES:-64 1024 4096 8192}
processes=${PROCESSES:-200}

# Watches processes that lie in one range of numbers and prints a row; the truth of the first is judged.
watch() { # NAME PID...
    local name=$1 pids=()
    shift
    for pid in "$@"; do pids+=(--pid "$pid"); done
    "$thermo" record "${pids[@]}" --duration "${each}s" -o "$work/budget.arrow" 2>"$work/errors" || cat "$work/errors" >&2
    "$thermo" report info "$work/budget.arrow" --json >"$work/info.json"
    "$thermo" eval monitor --judge "$work/budget.arrow" --truth "$work/truth" --json >"$work/judged.json" || return 0
    python3 benches/budget.py "$name" "$work/info.json" "$work/judged.json"
}

# A process with so many MiB, touched once, of which an eighth is touched on and on; returns when it is.
begin_target() { # MIB TRUTH
    local ready=$work/ready
    printf 'cold, %d\nhot, %d\n\nfill\n%d\ncold, 0, 4096, 1\n\nhot\n1000000\nhot, 0, 4096, 1\n' \
        $(($1 * 7 * 131072)) $(($1 * 131072)) $((300 + $1)) >"$work/target-$1.cfg"
    rm -f "$2"
    begin "$thermo" workload --quiet --truth "$2" "$work/target-$1.cfg"
    target=$last
    until [ -s "$2" ]; do sleep 0.1; done
}

measure() {
    echo "target       looking CPU     all CPU   memory   way                                      judged  hot found    right edge, pages  unknown"
    local mib
    for mib in $sizes; do
        begin_target "$mib" "$work/truth"
        sleep $((3 + mib / 500))
        watch "$mib MiB" "$target"
        end_all
    done
    local pids=()
    [ "$processes" -gt 0 ] || return 0
    for _ in $(seq $((processes - 1))); do begin_target 4 "$work/truth.other"; pids+=("$target"); done
    begin_target 4 "$work/truth"
    watch "$processes x 4 MiB" "$target" "${pids[@]}"
    end_all
}

keep budget "The budget of 1 % of a CPU" measure
