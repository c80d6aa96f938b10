#!/usr/bin/env bash
# Compares ways of memory tiering in a guest with two nodes: nothing, `thermo tier`, in-kernel DAMON, and the
# kernel's NUMA balancing. Prints a table: where the hot bytes are, how many accesses the fast node serves,
# pages moved, CPU time. Emulation shows placement, not speed. A run takes about twenty minutes.
# Usage: tests/guest/tiers_contest.sh [tiers_contest_PROGRAM...]
#
# THERMO=PROGRAM         the binary that runs in the guest (default: a new build)
# GUEST_OUT=FOLDER       where the consoles of the guests are saved (default: a temporary folder)
# CONTEST_RUNS=N         guests to boot, one after the other (1)
# CONTEST_SECONDS=S      length of each arm in seconds (60)
# CONTEST_ARMS=A,B       arms: alone, thermo (20 % of a CPU), thermo_default (1 %), damon, damon_fast, numa
# CONTEST_LIMIT=S        time limit of a guest in seconds (1800); results so far are printed
# FAST_NS, SLOW_NS       latencies of both kinds of memory, for the expected speed (90, 250)
set -euo pipefail
cd "$(dirname "$0")/../.."

all="tiers_contest_kernel tiers_contest_moving tiers_contest_redis tiers_contest_mariadb"
out=${GUEST_OUT:-$(mktemp -d)}
[ -n "${GUEST_OUT:-}" ] || trap 'rm -rf "$out"' EXIT
append="contest_seconds=${CONTEST_SECONDS:-60} contest_arms=${CONTEST_ARMS:-alone,thermo,damon,damon_fast,numa}"
for run in $(seq "${CONTEST_RUNS:-1}"); do
    # shellcheck disable=SC2086 # several words
    GUEST_OUT=$out/$run GUEST_TIMEOUT=${CONTEST_LIMIT:-1800} GUEST_APPEND=$append \
        tests/guest/guest.sh 6.12 ${*:-$all} >&2 || echo "tiers_contest: guest $run did not finish; the table has its results so far" >&2
done
python3 tests/guest/tiers_contest.py --fast-ns "${FAST_NS:-90}" --slow-ns "${SLOW_NS:-250}" "$out"/*/console-*.log
