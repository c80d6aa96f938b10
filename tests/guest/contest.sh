#!/usr/bin/env bash
# Compares in-kernel DAMON (5 ms/100 ms/1 s, 10-1000 regions, tracker kdamond) with the tracker pte, in one
# guest. Prints a table of hot-byte error, CPU time and slow-down of the program. One arm of pte has the
# default budget, another one the CPU time that the kernel's thread used. Takes about twenty minutes.
# Usage: tests/guest/contest.sh [contest_PATTERN...]
#
# THERMO=PROGRAM       the binary that runs in the guest and reads its recordings (default: a new build)
# GUEST_OUT=FOLDER     where recordings and truths are saved (default: a temporary folder)
# CONTEST_SECONDS=S    length of each arm in seconds (24)
# CONTEST_THP=MODE     transparent huge pages: always (Debian's default), madvise (Ubuntu's and Fedora's),
#                      never
# CONTEST_LIMIT=S      time limit of the guest in seconds (1500); results so far are printed
set -euo pipefail
cd "$(dirname "$0")/../.."

all="contest_hot_cold contest_stairs contest_zigzag contest_many_small contest_moving contest_random contest_redis contest_redis_recent"
out=${GUEST_OUT:-$(mktemp -d)}
[ -n "${GUEST_OUT:-}" ] || trap 'rm -rf "$out"' EXIT
# shellcheck disable=SC2086 # several words
GUEST_OUT=$out GUEST_TIMEOUT=${CONTEST_LIMIT:-1500} GUEST_APPEND="contest_seconds=${CONTEST_SECONDS:-24} transparent_hugepage=${CONTEST_THP:-always}" GUEST_PROGRAMS="redis-server redis-benchmark redis-cli" \
    tests/guest/guest.sh 6.12 ${*:-$all} >&2 || echo "contest: the guest did not finish; the table has its results so far" >&2
thermo=${THERMO:-${CARGO_TARGET_DIR:-target}/release/thermo}
python3 tests/guest/contest.py "$thermo" "$out/6.12/contest"
