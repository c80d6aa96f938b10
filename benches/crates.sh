#!/usr/bin/env bash
# The benchmarks of the crates: cost of access checks and scans, throughput of schemes, cost of the engine.
# Needs root.
. "$(dirname "$0")/lib.bash"

measure() {
    local bench
    for bench in crates/*/benches/*.rs block/*/benches/*.rs; do
        local crate=${bench#*/} name=${bench##*/}
        crate=${crate%%/*} name=${name%.rs}
        echo "== $crate: $name"
        scripts/cargo.sh bench --quiet --locked -p "thermo-$crate" --bench "$name"
    done
}

keep crates "Benches of the crates" measure
