#!/usr/bin/env bash
# The effect of monitoring and lru-sort on the kernel's active lists. A workload with 16 MiB of hot memory is
# monitored and sorted with several settings. The share of its hot pages on an active list is sampled SAMPLES
# times, every 1.37 s. Needs root.
. "$(dirname "$0")/lib.bash"
need_built "$thermo" "$thermo_lab"
samples=${SAMPLES:-20}

always_active() { # options that keep lru-sort active whatever the amount of free memory
    echo lru-sort --cold-min-age 1000s --wmarks-high 1000 --wmarks-mid 1000 --wmarks-low 0
}

row() { # NAME COMMAND...
    local name=$1 ranges nth
    shift
    "$thermo_lab" workload --duration 1000s workloads/hot-cold.cfg >"$work/output" &
    target=$!
    echo "$target" >>"$work/started"
    # The first phase touches everything.
    sleep 4
    ranges=$(sed -n 's/.*regions hot 0x\([0-9a-f]*\)-0x\([0-9a-f]*\) .*/\1-\2/p' "$work/output")
    if [ $# -gt 0 ]; then begin "$thermo" "$@" --pid "$target"; fi
    sleep 10
    for nth in $(seq "$samples"); do
        python3 benches/active.py "$target" "$ranges"
        sleep 1.37
    done >"$work/shares"
    sort -n "$work/shares" | awk -v name="$name" '
        { share[NR] = $1; sum += $1 }
        END { printf "%-36s %7.1f %% %7.1f %% %7.1f %% %7.1f %%\n", name, share[1], share[int((NR + 1) / 2)], sum / NR, share[NR] }'
    end_all
}

measure() {
    echo "hot pages on an active list               min   median      mean       max"
    row "alone"
    row "record, 1 % of a CPU" record -o "$work/active.arrow"
    row "record, 5 ms / 100 ms" record --sample 5ms --aggr 100ms -o "$work/active.arrow"
    row "lru-sort, 1 % of a CPU" $(always_active)
    row "lru-sort, 5 ms / 100 ms" $(always_active) --sample 5ms --aggr 100ms
}

keep active "Hot pages on the active lists" measure
