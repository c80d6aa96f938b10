#!/usr/bin/env bash
# Compares ways of memory tiering in a guest with two nodes: nothing, `thermo tier`, in-kernel DAMON, the
# kernel's NUMA balancing, and memtierd, which is built if Go is installed. Prints a table: where the hot
# bytes are, how many accesses the fast node serves, pages moved, CPU time. Emulation shows placement, not
# speed. A run takes about twenty minutes.
# Usage: tests/guest/tiers_contest.sh [tiers_contest_PROGRAM...]
#
# THERMO=PROGRAM         the binary that runs in the guest (default: a new build)
# GUEST_OUT=FOLDER       where the consoles of the guests are saved (default: a temporary folder)
# CONTEST_RUNS=N         guests to boot, one after the other (1)
# CONTEST_SECONDS=S      length of each arm in seconds (60)
# CONTEST_ARMS=A,B       arms: alone, thermo (20 % of a CPU), thermo_default (1 %), damon, damon_fast, numa,
#                        memtierd
# CONTEST_LIMIT=S        time limit of a guest in seconds (1800); results so far are printed
# FAST_NS, SLOW_NS       latencies of both kinds of memory, for the expected speed (90, 250)
set -euo pipefail
cd "$(dirname "$0")/../.."

all="tiers_contest_kernel tiers_contest_moving tiers_contest_redis tiers_contest_mariadb"
out=${GUEST_OUT:-$(mktemp -d)}
[ -n "${GUEST_OUT:-}" ] || trap 'rm -rf "$out"' EXIT
tools=${CARGO_TARGET_DIR:-target}/tools
if [ ! -x "$tools/memtierd" ] && command -v go >/dev/null; then
    mkdir -p "$tools"
    tools=$(realpath "$tools")
    module=$(mktemp -d)
    printf 'module contest\n\ngo 1.21\n\nrequire github.com/intel/memtierd v0.1.1\n' >"$module/go.mod"
    (cd "$module" && GOFLAGS=-mod=mod go build -o "$tools/memtierd" github.com/intel/memtierd/cmd/memtierd)
    rm -rf "$module"
fi
PATH=$PATH:$(realpath -m "$tools")
export PATH GUEST_PROGRAMS="${GUEST_PROGRAMS:-} memtierd"

append="contest_seconds=${CONTEST_SECONDS:-60} contest_arms=${CONTEST_ARMS:-alone,thermo,damon,damon_fast,numa,memtierd}"
for run in $(seq "${CONTEST_RUNS:-1}"); do
    # shellcheck disable=SC2086 # several words
    GUEST_OUT=$out/$run GUEST_TIMEOUT=${CONTEST_LIMIT:-1800} GUEST_APPEND=$append \
        tests/guest/guest.sh 6.12 ${*:-$all} >&2 || echo "tiers_contest: guest $run did not finish; the table has its results so far" >&2
done
compgen -G "$out/*/console-*.log" >/dev/null || { echo "tiers_contest: no guest got as far as its first test" >&2; exit 1; }
python3 tests/guest/tiers_contest.py --fast-ns "${FAST_NS:-90}" --slow-ns "${SLOW_NS:-250}" "$out"/*/console-*.log
