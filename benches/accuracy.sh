#!/usr/bin/env bash
# How much of what was found hot is hot, and how much of what is hot was found: the ready patterns, recorded at
# 5 ms / 100 ms and at the default budget, judged by the workload's own truth. As root.
. "$(dirname "$0")/lib.bash"
need_built "$thermo" "$thermo_lab"

judge() { # NAME PATTERN FLAGS...
    local name=$1 pattern=$2
    shift 2
    "$thermo" record "$@" -o "$work/$name.arrow" -- \
        "$thermo_lab" workload --quiet --truth "$work/truth.jsonl" --truth-span 20ms "workloads/$pattern.cfg" 2>/dev/null
    "$thermo_lab" monitor --judge "$work/$name.arrow" --truth "$work/truth.jsonl" >"$work/judged"
    # One head for all rows.
    if [ -n "${told_head:-}" ]; then tail -n 2 "$work/judged"; else cat "$work/judged"; fi
    told_head=yes
}

measure() {
    local pattern regions
    echo "hot: seen accessed in at least half of its looks; truth: touched in the same phase; unknown memory is left out."
    echo "Judged is every aggregation that lies within a phase as a whole, but for the first of each."
    for pattern in stairs zigzag; do
        for regions in 1000 100; do
            judge "$pattern-$regions-regions" "$pattern" --sample 5ms --aggr 100ms --max-regions "$regions"
        done
        judge "$pattern-1%-of-a-CPU" "$pattern"
    done
}

keep accuracy "Accuracy: hot bytes found against the truth" measure
