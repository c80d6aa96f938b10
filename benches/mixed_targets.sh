#!/usr/bin/env bash
# Monitors a small and a large program in one context, with a budget (CPU, 0.1%) that is too small to scan the
# large one. Large: LARGE_MIB (8192), an eighth touched all the time. Small: 64 MiB with 64 hot pieces of 64
# KiB. Compares the method auto with sampling of both. Each run takes SECONDS_EACH (240); the last 80 s are
# evaluated, because auto tries scans of both programs for two minutes. Needs root.
. "$(dirname "$0")/lib.bash"
. benches/targets.bash
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
        python3 benches/mixed_targets.py last 80 "$work/$which.truth" >"$work/last.truth"
        if "$thermo_lab" monitor --judge "$work/both.arrow" --truth "$work/last.truth" --json >"$work/judged.json"; then
            python3 benches/mixed_targets.py row "$1" "$which" "$work/info.json" "$work/judged.json"
        else
            echo "$1, $which: the recording could not be evaluated"
        fi
    done
}

# 64 pairs of 960 KiB that are touched once and 64 KiB that are touched all the time.
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
    printf '%-8s %-8s %11s %10s %9s %10s %9s %11s\n' method program monitoring 'of budget' snapshots recall precision \
        'edge, pages'
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

keep mixed-targets "A small program and a large one in one context" measure
