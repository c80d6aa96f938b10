#!/usr/bin/env bash
# Accuracy of working set, idle ages and resident size of a recording, compared with the kernel's truth, on
# servers under a steady random load. Truth: accessed bits cleared by clear_refs, then Referenced of smaps
# after 5, 10 and 30 s. This clears the bits that a recording reads, so the truth is measured before and after
# the recording, not during it. Exit code 1: a difference exceeds 5 % of resident memory. Needs root.
#
# Usage: working_set.sh [--quick] [--truth-only] [WORKLOAD...]
#   --quick       small data, short warm-up, fewer rounds
#   --truth-only  only the truth and its noise; does not need thermo
# Workloads: mariadb memcached-hot memcached-uniform redis rocksdb random-1k random-10k random-100k, and
# similar accesses without a server: lab-mariadb lab-memcached-hot lab-memcached-uniform. Default: all.
# Packages: scripts/deps.sh eval. Missing servers are skipped with a message.
. "$(dirname "$0")/lib.bash"
# shellcheck source=benches/servers.bash
. benches/servers.bash

all="mariadb memcached-hot memcached-uniform redis rocksdb random-1k random-10k random-100k
    lab-mariadb lab-memcached-hot lab-memcached-uniform"
size=full judged=yes chosen=()
for argument in "$@"; do
    case "$argument" in
        --quick) size=quick ;;
        --truth-only) judged= ;;
        -*) echo "working_set: unknown option $argument: use --quick or --truth-only" >&2; exit 2 ;;
        *) chosen+=("$argument") ;;
    esac
done

set_sizes "$size"
if [ "$size" = full ]; then
    warm_up=${WARM_UP:-60} rounds=${ROUNDS:-2}
else
    warm_up=${WARM_UP:-15} rounds=${ROUNDS:-1}
fi
record_s=${SECONDS_EACH:-60}

measure_truth() { # ROUNDS [OPTIONS of measure...]
    python3 benches/working_set.py measure --pid "$target" --out "$work/truth.jsonl" --rounds "$@" && return
    tail -c 1000 "$work/errors" >&2
    exit 1
}

record() {
    mkdir -p "$work/reports"
    "$thermo" record --pid "$target" --duration "${record_s}s" -o "$work/one.arrow" >/dev/null 2>"$work/errors" ||
        cat "$work/errors"
    local report
    for report in wss idle info; do
        "$thermo" report "$report" "$work/one.arrow" --json >"$work/reports/$report.json" || true
    done
}

row() { # WORKLOAD
    local flags=() absent
    absent=$(missing "$1")
    if [ -n "$absent" ]; then
        echo "$1: skipped, $absent is not installed"
        return
    fi
    rm -rf "$work/truth.jsonl" "$work/own.jsonl" "$work/reports"
    "workload_${1//-/_}"
    sleep "$warm_up"
    # Discard the first window: it contains accessed bits from filling.
    measure_truth 1 --windows 5
    rm "$work/truth.jsonl"
    measure_truth "$rounds"
    if [ -n "$judged" ]; then
        record
        flags+=(--reports "$work/reports")
    fi
    measure_truth "$rounds"
    [ ! -e "$work/own.jsonl" ] || flags+=(--own "$work/own.jsonl")
    python3 benches/working_set.py compare "$1" --truth "$work/truth.jsonl" ${flags[@]+"${flags[@]}"} ||
        echo "$1" >>"$work/beyond"
    end_all
    rm -rf "$work/mariadb" "$work/rocksdb"
}

measure() {
    local name
    for name in "${chosen[@]}"; do row "$name"; done
    if [ -e "$work/beyond" ]; then echo "difference above 5 % of resident, or missing: $(tr '\n' ' ' <"$work/beyond")"; fi
}

# Only a run of all workloads at full size is saved as a result.
is_complete=
if [ "${#chosen[@]}" -eq 0 ]; then
    is_complete=yes
    read -r -d '' -a chosen <<<"$all" || true
fi
for name in "${chosen[@]}"; do
    declare -F "workload_${name//-/_}" >/dev/null || { echo "working_set: unknown workload $name: use" $all >&2; exit 2; }
done
[ -z "$judged" ] || need_built "$thermo"
python3 benches/working_set_test.py 2>"$work/errors" || { cat "$work/errors" >&2; exit 2; }
cc -O2 -o "$work/random_pages" benches/random_pages.c -lm
if [ -n "$judged" ] && [ "$size" = full ] && [ "$is_complete" = yes ]; then
    keep working-set "Working sets and idle ages against the kernel" measure
else
    measure
fi
[ ! -e "$work/beyond" ]
