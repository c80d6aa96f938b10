#!/usr/bin/env bash
# What the agent costs: 50 programs that map 800 MiB each, of which 64 MiB are resident. Its CPU time for
# watching against the budget, its memory, the time of an answer of /metrics, the bytes of the history, and
# how many of 1,000 programs that live for 2 s it sees. Needs root. About 5 minutes.
#
# Usage: agent.sh [--quick]   (--quick: 10 programs, 100 short ones, 30 s)
. "$(dirname "$0")/lib.bash"

case "${1:-}" in
    "") arguments=(--programs 50 --short 1000 --seconds 180) ;;
    --quick) arguments=(--programs 10 --short 100 --seconds 30) ;;
    *) echo "agent: unknown option $1: use --quick" >&2; exit 2 ;;
esac
need_built "$thermo"
keep agent "Cost of the agent" python3 benches/agent.py --thermo "$thermo" "${arguments[@]}"
