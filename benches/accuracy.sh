#!/usr/bin/env bash
# Precision and recall of hot memory: bundled patterns, recorded at 5 ms / 100 ms and at the default budget,
# compared with the workload's truth. Needs root.
. "$(dirname "$0")/lib.bash"
need_built "$thermo" "$thermo_lab"

judge() { # NAME PATTERN FLAGS...
    local name=$1 pattern=$2
    shift 2
    "$thermo" record "$@" -o "$work/$name.arrow" -- \
        "$thermo_lab" workload --quiet --truth "$work/truth.jsonl" --truth-span 20ms "workloads/$pattern.cfg" 2>/dev/null
    "$thermo_lab" monitor --judge "$work/$name.arrow" --truth "$work/truth.jsonl" >"$work/judged"
    # Print the table's header once.
    if [ -n "${has_header:-}" ]; then tail -n 2 "$work/judged"; else cat "$work/judged"; fi
    has_header=yes
}

measure() {
    local pattern regions
    echo "hot: accessed in at least half of the access checks; truth: touched in the same phase; unknown memory is excluded."
    echo "Evaluated: aggregations that lie entirely within a phase, except the first of each phase."
    for pattern in stairs zigzag; do
        for regions in 1000 100; do
            judge "$pattern-$regions-regions" "$pattern" --sample 5ms --aggr 100ms --max-regions "$regions"
        done
        judge "$pattern-1%-of-a-CPU" "$pattern"
    done
}

keep accuracy "Accuracy: hot bytes found against the truth" measure
