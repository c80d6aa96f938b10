#!/usr/bin/env bash
# Fuzzes every target, or those named, one after the other: FUZZ_SECONDS each (60), or FUZZ_INPUTS inputs
# each. Prints a line per target: inputs, inputs of all runs, inputs a second, peak resident memory, covered
# branches, and the finding, which ends a run. The input is then in target/fuzz/findings; run it again with
# `scripts/fuzz.sh --input FILE TARGET`. Ends with 1 if there is a finding.
#
# Only stable Rust is needed: libFuzzer is linked by the crate libfuzzer-sys, and LLVM's own option
# instruments the code. Overflows and failed debug assertions panic. There is no address sanitizer, which
# needs nightly Rust.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${FUZZ_SECONDS:-60}
inputs=${FUZZ_INPUTS:-0}
platform=$(scripts/cargo.sh -vV | sed -n 's/^host: //p')
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
findings=$target_dir/fuzz/findings
# What libFuzzer learns of each target, kept for the next run.
learned=$target_dir/fuzz/corpus
# Target and inputs of each run so far.
runs=$target_dir/fuzz/runs
groups=(machine formats recordings reports daemons network)

build() { # GROUP...
    local group
    for group in "$@"; do
        RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
            -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
            -Cllvm-args=-sanitizer-coverage-trace-compares" \
            scripts/cargo.sh build --locked --quiet --package thermo-fuzz --no-default-features \
            --features "libfuzzer,$group" --profile fuzz --target "$platform" --bins
    done
}

targets_of() { # GROUP
    FUZZ_TARGET='' "$(program "$1")" -runs=0 -artifact_prefix="$work/" 2>&1 | sed -n 's/.*set it to one of //p'
}

program() { # GROUP
    echo "$target_dir/$platform/fuzz/fuzz_$1"
}

group_of() { # TARGET
    local group
    for group in "${groups[@]}"; do
        case " $(targets_of "$group") " in *" $1 "*) echo "$group" && return ;; esac
    done
    echo "fuzz: there is no target $1. Targets: $(for group in "${groups[@]}"; do targets_of "$group"; done | xargs)" >&2
    exit 2
}

# Memory is bounded: 512 MiB resident, 256 MiB in one allocation. An input that takes 10 s is a finding.
fuzz() { # GROUP TARGET
    local log=$work/$2.log finding=none limits=("-max_total_time=$seconds")
    [ "$inputs" -eq 0 ] || limits=("-runs=$inputs")
    mkdir -p "$learned/$2" "$findings/$2"
    if ! FUZZ_TARGET=$2 nice "$(program "$1")" "${limits[@]}" -rss_limit_mb=512 -malloc_limit_mb=256 -timeout=10 \
        -print_final_stats=1 -artifact_prefix="$findings/$2/" "$learned/$2" "fuzz/corpus/$2" >"$log" 2>&1; then
        finding=$(sed -n 's/.*panicked at /panic at /p; s/^SUMMARY: libFuzzer: //p' "$log" | head -n 1)
        failed+=("$2")
    fi
    stat() { sed -n "s/^stat::$1: *//p" "$log" | tail -n 1; }
    echo "$2 $(stat number_of_executed_units)" >>"$runs"
    in_all=$(awk -v target="$2" '$1 == target { n += $2 } END { print n }' "$runs")
    coverage=$(grep -o ' cov: [0-9]*' "$log" | tail -n 1 | cut -d' ' -f3)
    printf '%-20s %12s %12s %9s %5s MiB %8s  %s\n' "$2" "$(stat number_of_executed_units)" "$in_all" \
        "$(stat average_exec_per_sec)" "$(stat peak_rss_mb)" "$coverage" "${finding:-ended without a report}"
}

work=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'rm -rf "$work"' EXIT
# The files of the fake machine, which no disk needs to see.
export TMPDIR=$work
failed=()

if [ "${1:-}" = --input ]; then
    build "${groups[@]}"
    group=$(group_of "$3")
    FUZZ_TARGET=$3 "$(program "$group")" "$2"
    exit
fi

build "${groups[@]}"
wanted=()
for target in "$@"; do
    group=$(group_of "$target")
    wanted+=("$group $target")
done
if [ $# -eq 0 ]; then
    for group in "${groups[@]}"; do
        for target in $(targets_of "$group"); do wanted+=("$group $target"); done
    done
fi
printf '%-20s %12s %12s %9s %9s %8s  %s\n' target inputs 'in all' inputs/s 'peak rss' coverage finding
for pair in "${wanted[@]}"; do
    fuzz "${pair% *}" "${pair#* }"
done
[ "${#failed[@]}" -eq 0 ] || { echo "findings of ${failed[*]}: see $findings" >&2; exit 1; }
