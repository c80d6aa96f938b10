#!/usr/bin/env bash
# The part of the guests that the gate has time for: Debian's 6.12 and 6.1 boot, doctor tells what it can do, a program is
# recorded, schemes act, what is refused is refused. What cannot be fetched, or is too slow on this machine, is a line SKIP
# and no failure.
# Usage: tests/guest/short.sh
#
# THERMO=PROGRAM      the binary to test (else the one the tests were built with)
# SHORT_LIMIT=S       all of it, downloads included, takes no longer (480)
set -uo pipefail
cd "$(dirname "$0")/../.."

tests="doctor_chooses_pte record_tells_something record_applies_schemes cold_is_applied killed_record_is_readable
    record_ends_with_its_target unknown_tracker_is_refused a_kernel_without_types_is_told lockdown_is_told"
limit=${SHORT_LIMIT:-480}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
left() { echo $((limit - SECONDS)); }
skip() {
    echo "SKIP: guest: $*"
    exit "${failed:-0}"
}

# Emulated time passes as this machine has time for it: what fails is tried again, and named when it passes then.
in_guest() { # VERSION
    local attempt status
    timeout "$(left)" tests/guest/kernel.sh "$1" >"$log" 2>&1 || skip "Debian's kernel $1 could not be fetched within $limit s: $(tail -n 1 "$log")"
    for attempt in first second; do
        [ "$(left)" -gt 60 ] || skip "$1: $SECONDS s of the $limit there are had passed"
        status=0
        # shellcheck disable=SC2086 # several words
        GUEST_TIMEOUT=$(left) tests/guest/guest.sh "$1" $tests >"$log" 2>&1 || status=$?
        # 124 is timeout's. A guest that ended otherwise, or that told of a failure before, is no matter of time.
        if grep -q 'ended with status 124 ' "$log" && [ "$(grep -c 'not ok ' "$log")" -eq "$(grep -c 'not ok guest: ' "$log")" ]; then
            skip "the emulated machine with $1 was not through within $limit s"
        fi
        [ "$status" -ne 0 ] || break
    done
    [ "$status" -ne 0 ] || [ "$attempt" = first ] || echo "FLAKY: guest: $1 passed when it was run again"
    cat "$log"
    return "$status"
}

export THERMO=${THERMO:-${CARGO_TARGET_DIR:-target}/debug/thermo}
[ -x "$THERMO" ] || skip "$THERMO is not there: the tests were not built"
timeout "$(left)" scripts/deps.sh guest >"$log" 2>&1 || skip "what emulates a machine could not be installed within $limit s: $(tail -n 1 "$log")"
failed=0
for version in 6.12 6.1; do
    in_guest "$version" || failed=1
done
exit "$failed"
