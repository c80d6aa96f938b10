#!/usr/bin/env bash
# What questions about the past cost the agent: CPU time of heatmap, memory over time and advice of one target
# in 24 hours of 50 targets, with figures that hardly compress. About a minute.
#
# Usage: history.sh [HOURS [TARGETS]]
. "$(dirname "$0")/lib.bash"

program=$(dirname "$thermo")/examples/history_cost
[ -x "$program" ] || {
    echo "$program does not exist: run  cargo build --release -p thermo-agent --example history_cost" >&2
    exit 2
}
keep history "Cost of questions about the past" "$program" "$@"
