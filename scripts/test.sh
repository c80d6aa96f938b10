#!/usr/bin/env bash
# All checks of `make test`: format, spelling, links, dependencies, systemd units, lints, documentation, and
# every test program, one at a time.
#
# A test that cannot run on this machine prints a line `SKIP: reason`. Skips are counted and listed at the
# end. Live tests and the tests of crates/cli depend on real processes of a shared machine. A failing program
# of these is run again, at most twice. If it then passes, it is reported as FLAKY.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo=scripts/cargo.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
started=$SECONDS
durations=()

phase() { # NAME COMMAND...
    local name=$1 begin=$SECONDS
    shift
    echo "== $name"
    if ! "$@"; then
        echo "$name failed after $((SECONDS - begin)) s: $*" >&2
        exit 1
    fi
    durations+=("$name $((SECONDS - begin)) s")
}

# Also builds the commands for the tests of their packages. Tests of thermo monitor workloads of thermo-lab.
build_tests() {
    "$cargo" test --workspace --locked --no-run --message-format=json-render-diagnostics >"$work/artifacts"
}

# Prints one line per test program: package folder, name, path.
list_programs() {
    grep '"reason":"compiler-artifact"' "$work/artifacts" | grep '"profile":{[^}]*"test":true' | grep '"executable":"' |
        sed -E 's|.*"manifest_path":"([^"]*)/Cargo.toml".*"target":\{[^}]*"name":"([^"]*)".*"executable":"([^"]*)".*|\1 \2 \3|' |
        sort
}

run_program() { # FOLDER NAME PROGRAM LOG
    local threads=()
    case "$2" in live_*) threads=(--test-threads=1) ;; esac
    (cd "$1" && CARGO_MANIFEST_DIR=$1 timeout --kill-after=20 900 "$3" --show-output "${threads[@]}") >"$4" 2>&1 </dev/null
}

may_retry() { # FOLDER NAME
    case "$1/$2" in */live_* | */crates/cli/*) true ;; *) false ;; esac
}

flaky=()
failed=()
run_tests() {
    local folder name program log label attempt
    while read -r folder name program; do
        label="${folder##*/}/$name"
        log="$work/$(echo "$label" | tr / _).log"
        if run_program "$folder" "$name" "$program" "$log"; then
            echo "$label: $(result_of "$log")"
            continue
        fi
        attempt=1
        while may_retry "$folder" "$name" && [ "$attempt" -le 2 ]; do
            grep -E '^test .*FAILED|panicked at' "$log" | sed 's/^/    /' || true
            echo "$label: failed, retry $attempt of 2"
            mv "$log" "$log.failed.$attempt"
            if run_program "$folder" "$name" "$program" "$log"; then
                flaky+=("$label")
                echo "$label: $(result_of "$log")"
                continue 2
            fi
            attempt=$((attempt + 1))
        done
        failed+=("$label")
        cat "$log"
        echo "$label: FAILED"
    done <"$work/programs"
}

result_of() { # LOG
    sed -n 's/^test result: [a-zA-Z]*\. \([0-9]* passed\); \([0-9]* failed\).*/\1, \2/p' "$1" | tail -n 1
}

run_doc_tests() {
    local log="$work/doc_tests.log"
    "$cargo" test --workspace --locked --doc -- --show-output >"$log" 2>&1 || { cat "$log"; failed+=(doc-tests); }
}

# The Python module, with the commands that the phase `build` made.
run_python() {
    local log="$work/python.log"
    { echo "---- python stdout ----" && THERMO='' scripts/python.sh --quick; } >"$log" 2>&1 || { cat "$log"; failed+=(python); }
    echo "python: $(result_of "$log")"
}

# The package of the fleet, on Spark.
run_fleet() {
    local log="$work/fleet.log"
    { echo "---- fleet stdout ----" && scripts/fleet.sh --quick; } >"$log" 2>&1 || { cat "$log"; failed+=(fleet); }
    echo "fleet: $(result_of "$log")"
}

sum_of() { # passed|failed
    { cat "$work"/*.log | sed -n "s/^test result:.*[^0-9]\([0-9][0-9]*\) $1;.*/\1/p" | awk '{ n += $1 } END { print n + 0 }'; }
}

list_skips() {
    awk '/^---- .* stdout ----$/ { name = $2 } /^SKIP: / { print name ": " substr($0, 7) }' "$work"/*.log
}

phase format "$cargo" fmt --all --check
phase tables scripts/kernels.sh --check
phase spelling scripts/spelling.sh
phase links scripts/links.py
phase wrap scripts/wrap.py
phase dependencies scripts/dependencies.py
phase units scripts/units.sh
phase lints "$cargo" clippy --workspace --locked --all-targets --quiet -- -D warnings
RUSTDOCFLAGS="-D warnings" phase documentation "$cargo" doc --workspace --locked --no-deps --quiet
phase build build_tests
list_programs >"$work/programs"
phase tests run_tests
phase doc-tests run_doc_tests
phase python run_python
phase fleet run_fleet

list_skips >"$work/skips"
skipped=$(wc -l <"$work/skips")
passed=$(($(sum_of passed) - skipped))
failures=$(sum_of failed)
# A program that ended without a result line also failed.
[ "$failures" -ge "${#failed[@]}" ] || failures=${#failed[@]}

echo
if [ "$skipped" -gt 0 ]; then
    echo "skipped on this machine:"
    sed 's/^/  /' "$work/skips"
fi
for name in ${flaky[@]+"${flaky[@]}"}; do echo "FLAKY: $name (failed, then passed)"; done
for name in ${failed[@]+"${failed[@]}"}; do echo "FAILED: $name"; done
(IFS=,; echo "time: ${durations[*]}, total $((SECONDS - started)) s" | sed 's/,\([^ ]\)/, \1/g')
echo "$passed passed, $failures failed, $skipped skipped${flaky[0]:+, ${#flaky[@]} flaky}"
[ "${#failed[@]}" -eq 0 ]
