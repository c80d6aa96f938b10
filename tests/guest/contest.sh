#!/usr/bin/env bash
# The contest of in-kernel DAMON (5 ms/100 ms/1 s, 10-1000 regions, through tracker kdamond) with our own tracker, in
# one guest: hot-byte error, CPU, slow-down of the program; as a table. Ours has the default budget in one arm and the
# CPU that the kernel's thread was measured to use in another. Takes some twenty minutes.
# Usage: tests/guest/contest.sh [contest_PATTERN...]
#
# THERMO=PROGRAM       the binary that runs in the guest and reads its recordings (else a release build is made)
# GUEST_OUT=FOLDER     where recordings and truths are kept (a temporary one)
# CONTEST_SECONDS=S    how long each arm is (24)
# CONTEST_THP=MODE     transparent huge pages: always (as Debian has them), madvise (as Ubuntu and Fedora do) or never
# CONTEST_LIMIT=S      after so many seconds the guest is ended (1500); what it left is told
set -euo pipefail
cd "$(dirname "$0")/../.."

all="contest_hot_cold contest_stairs contest_zigzag contest_many_small contest_moving contest_random contest_redis contest_redis_recent"
out=${GUEST_OUT:-$(mktemp -d)}
[ -n "${GUEST_OUT:-}" ] || trap 'rm -rf "$out"' EXIT
# shellcheck disable=SC2086 # several words
GUEST_OUT=$out GUEST_TIMEOUT=${CONTEST_LIMIT:-1500} GUEST_APPEND="contest_seconds=${CONTEST_SECONDS:-24} transparent_hugepage=${CONTEST_THP:-always}" GUEST_PROGRAMS="redis-server redis-benchmark redis-cli" \
    tests/guest/guest.sh 6.12 ${*:-$all} >&2 || echo "contest: the guest was not through; what it left is told" >&2
thermo=${THERMO:-${CARGO_TARGET_DIR:-target}/release/thermo}
python3 tests/guest/contest.py "$thermo" "$out/6.12/contest"
