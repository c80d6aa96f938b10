#!/usr/bin/env bash
# The memory of `thermo record` while it records 1000 regions, and how long `thermo --version` takes. As root.
. "$(dirname "$0")/lib.bash"
need_thermo

measure() {
    "$thermo" workload --quiet --duration 1000s workloads/stairs.cfg &
    local target=$! watcher
    started+=("$target")
    "$thermo" record --pid "$target" --min-regions 1000 --max-regions 1000 -o "$work/footprint.arrow" 2>/dev/null &
    watcher=$!
    started+=("$watcher")
    sleep 20
    python3 benches/footprint.py "$watcher" "$thermo"
}

keep footprint "Memory of the watcher" measure
