#!/usr/bin/env bash
# How much of what was found hot is hot, and how much of what is hot was found: the ready patterns, recorded at
# 5 ms / 100 ms, judged by the workload's own truth. As root.
. "$(dirname "$0")/lib.bash"
need_thermo

record() { # PATTERN MAX_REGIONS
    "$thermo" record --sample 5ms --aggr 100ms --max-regions "$2" -o "$work/$1-$2.arrow" -- \
        "$thermo" workload --quiet --truth "$work/$1-$2.jsonl" --truth-span 20ms "workloads/$1.cfg" 2>/dev/null
    "$thermo" report regions "$work/$1-$2.arrow" --json >"$work/$1-$2.json"
}

measure() {
    local pattern regions
    echo "hot: seen accessed in at least half of its looks; truth: touched in the same 100 ms; unknown memory is left out"
    for pattern in stairs zigzag; do
        for regions in 1000 100; do
            record "$pattern" "$regions"
            python3 benches/accuracy.py "$pattern, at most $regions regions" "$work/$pattern-$regions.json" "$work/$pattern-$regions.jsonl"
        done
    done
}

keep accuracy "Accuracy: hot bytes found beside the truth" measure
