#!/usr/bin/env bash
# A small program beside one that is too large for its pages to be looked at within the budget: LARGE_MIB (8192), of which an
# eighth is touched all the time, beside 64 MiB with 64 pieces of 64 KiB that are, at CPU (0.1%) of a CPU, by what is chosen
# and by samples of both. Each for SECONDS_EACH (240), of which the last 80 seconds are judged, since rounds over all are
# tried for two minutes. As root.
. "$(dirname "$0")/lib.bash"
. benches/eighth.bash
need_built "$thermo" "$thermo_lab"
each=${SECONDS_EACH:-240}
large_mib=${LARGE_MIB:-8192}
cpu=${CPU:-0.1%}

row() { # METHOD
    "$thermo" record --pid "$small" --pid "$large" --cpu "$cpu" --method "$1" --duration "${each}s" -o "$work/both.arrow" 2>"$work/errors" ||
        cat "$work/errors" >&2
    "$thermo" report info "$work/both.arrow" --json >"$work/info.json"
    local which
    for which in small large; do
        python3 benches/parting.py last 80 "$work/$which.truth" >"$work/last.truth"
        if "$thermo_lab" monitor --judge "$work/both.arrow" --truth "$work/last.truth" --json >"$work/judged.json"; then
            python3 benches/parting.py row "$1" "$which" "$work/info.json" "$work/judged.json"
        else
            echo "$1, $which: nothing could be judged"
        fi
    done
}

# 64 times 960 KiB that are touched once and 64 KiB that are touched on and on.
begin_small() { # TRUTH
    local nth
    {
        for nth in {1..64}; do printf 'cold%d, %d\nhot%d, %d\n' "$nth" $((960 * 1024)) "$nth" $((64 * 1024)); done
        printf '\nfill\n1000\n'
        for nth in {1..64}; do printf 'cold%d, 0, 4096, 1\nhot%d, 0, 4096, 1\n' "$nth" "$nth"; done
        printf '\nhot\n1000000\n'
        for nth in {1..64}; do printf 'hot%d, 0, 4096, 1\n' "$nth"; done
    } >"$work/small.cfg"
    begin_touching "$work/small.cfg" "$1"
}

measure() {
    echo "look     program   looking CPU of budget   judged  hot found    right   edge, pages"
    begin_target "$large_mib" "$work/large.truth"
    large=$target
    sleep $((3 + large_mib / 500))
    begin_small "$work/small.truth"
    small=$target
    sleep 3
    row auto
    row sampling
    end_all
}

keep parting "A small program and a large one in one context" measure
