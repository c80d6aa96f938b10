#!/usr/bin/env bash
# The memory of `thermo record` while it records 1000 regions, and the run time of `thermo --version`. Needs
# root.
. "$(dirname "$0")/lib.bash"
need_built "$thermo" "$thermo_lab"

measure() {
    begin "$thermo_lab" workload --quiet --duration 1000s workloads/stairs.cfg
    begin "$thermo" record --pid "$last" --sample 5ms --min-regions 1000 --max-regions 1000 -o "$work/footprint.arrow"
    sleep ${SETTLE:-20}
    python3 benches/footprint.py "$last" "$thermo"
    end_all
}

keep footprint "Memory of thermo record" measure
