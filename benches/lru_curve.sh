#!/usr/bin/env bash
# The curve of `thermo advise`, memory kept against misses, compared with an exact LRU simulation of the same
# accesses. The accesses are known: random_pages draws them from a seed. libCacheSim simulates if Python can
# import it (pip install libcachesim), else a few lines of Python do. Exit code 1: a point differs by more
# than 2 percentage points. Needs root. Environment: PAGES (40000), RATE (1000 a second), WATCH (180 s).
. "$(dirname "$0")/lib.bash"
need_built "$thermo"
pages=${PAGES:-40000} rate=${RATE:-1000} watch=${WATCH:-180}
pareto=0.2

measure() {
    cc -O2 -o "$work/random_pages" benches/random_pages.c -lm
    begin "$work/random_pages" --pages "$pages" --rate "$rate" --pareto "$pareto" --scatter --seed 42
    local pid=$last began status=0
    began=$(date +%s.%N)
    sleep 30
    "$thermo" advise --pid "$pid" --duration "${watch}s" --no-sample-content --json >"$work/advice.json" 2>"$work/errors" || status=$?
    [ "$status" -le 1 ] || { cat "$work/errors" >&2; exit 2; }
    python3 benches/lru_curve.py --advice "$work/advice.json" --pages "$pages" --rate "$rate" --pareto "$pareto" \
        --warm 30 --seconds "$(awk -v began="$began" -v now="$(date +%s.%N)" 'BEGIN { print now - began }')"
}

measure
