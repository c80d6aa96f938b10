#!/usr/bin/env bash
# What a recording costs beside very many processes, mappings, addresses and forks, at the default budget of
# 1 % of a CPU: CPU time of the whole command, and of monitoring alone from the first pass on; its memory; the
# time until the idle age of half the memory is known; the number of snapshots. Needs root, 4 GiB.
# About 13 minutes.
#
# Usage: neighbours.sh [--quick]   (--quick: 500 processes, 30 s each)
. "$(dirname "$0")/lib.bash"

case "${1:-}" in
    "") arguments=() ;;
    --quick) arguments=(--processes 500 --groups 200 --seconds 30) ;;
    *) echo "neighbours: unknown option $1: use --quick" >&2; exit 2 ;;
esac
need_built "$thermo"
keep neighbours "Cost beside very many processes, mappings and forks" \
    python3 benches/neighbours.py --thermo "$thermo" "${arguments[@]}"
