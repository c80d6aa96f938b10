#!/usr/bin/env bash
# CPU time, memory and accuracy by size of the target. Real targets of 64 MiB to 8 GiB (SIZES, in MiB), an
# eighth of which is hot, at the default budget for SECONDS_EACH (40) plus ten seconds per GiB; the cost of
# one access check and of scanning a GiB of small and of huge pages; and synthetic page tables of up to a TiB
# (GROWTH_MIB, GROWTH_SECONDS). Needs root.
. "$(dirname "$0")/lib.bash"
. benches/targets.bash
need_built "$thermo" "$thermo_lab"
each=${SECONDS_EACH:-40}
sizes=${SIZES:-64 256 1024 4096 8192}

measure_real_targets() {
    local mib
    for mib in $sizes; do
        begin_target "$mib" "$work/truth"
        sleep $((3 + mib / 500))
        record_and_judge "$mib" $((each + mib / 100)) "$work/truth" --pid "$target" || rm -f "$work/$mib.judged.json"
        end_all
    done
    # shellcheck disable=SC2086 # several words
    python3 benches/growth.py "$work" $sizes
}

measure() {
    echo "== real targets at 1 % of a CPU"
    measure_real_targets
    echo
    echo "== access checks and scans"
    scripts/cargo.sh bench --quiet --locked -p thermo-runtime --bench probe_cost
    echo
    echo "== synthetic page tables"
    scripts/cargo.sh bench --quiet --locked -p thermo-sim --bench growth
}

keep growth "Cost and accuracy by size of the target" measure
