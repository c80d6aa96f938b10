#!/usr/bin/env bash
# The guest tests for continuous integration: boot Debian's 6.12 and 6.1, run doctor, record a program, apply
# schemes, check errors. If a download fails or this machine is too slow, prints a SKIP line instead of
# failing.
# Usage: tests/guest/short.sh
#
# THERMO=PROGRAM      the binary to test (default: the debug build of the tests)
# SHORT_LIMIT=S       time limit in seconds for everything, including downloads (480)
set -uo pipefail
cd "$(dirname "$0")/../.."

tests="doctor_chooses_pte record_writes_a_snapshot record_applies_schemes cold_is_applied killed_record_is_readable
    record_ends_with_its_target unavailable_tracker_is_rejected missing_btf_is_reported lockdown_is_reported"
limit=${SHORT_LIMIT:-480}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
left() { echo $((limit - SECONDS)); }
skip() {
    echo "SKIP: guest: $*"
    exit "${failed:-0}"
}

# Emulation speed depends on the load of this machine, so a failure is retried once. A pass at retry is
# reported as FLAKY.
in_guest() { # VERSION
    local attempt status
    timeout "$(left)" tests/guest/kernel.sh "$1" >"$log" 2>&1 || skip "Debian's kernel $1 could not be downloaded within $limit s: $(tail -n 1 "$log")"
    for attempt in first second; do
        [ "$(left)" -gt 60 ] || skip "$1: less than 60 s of the limit of $limit s are left"
        status=0
        # shellcheck disable=SC2086 # several words
        GUEST_TIMEOUT=$(left) tests/guest/guest.sh "$1" $tests >"$log" 2>&1 || status=$?
        # Status 124: timeout. A guest that ended otherwise, or reported a failure before, is not merely too
        # slow.
        if grep -q 'ended with status 124 ' "$log" && [ "$(grep -c 'not ok ' "$log")" -eq "$(grep -c 'not ok guest: ' "$log")" ]; then
            skip "the emulated machine with $1 did not finish within $limit s"
        fi
        [ "$status" -ne 0 ] || break
        sed -n "s/.*not ok /guest: $1, $attempt attempt: /p" "$log"
    done
    [ "$status" -ne 0 ] || [ "$attempt" = first ] || echo "FLAKY: guest: $1 failed, then passed"
    cat "$log"
    return "$status"
}

export THERMO=${THERMO:-${CARGO_TARGET_DIR:-target}/debug/thermo}
[ -x "$THERMO" ] || skip "$THERMO does not exist: run  make test"
timeout "$(left)" scripts/deps.sh guest >"$log" 2>&1 || skip "the emulator could not be installed within $limit s: $(tail -n 1 "$log")"
failed=0
for version in 6.12 6.1; do
    in_guest "$version" || failed=1
done
exit "$failed"
