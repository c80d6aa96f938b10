#!/usr/bin/env bash
# The product's story in a minute: where the hot and cold memory of a real program is, and, as root, what
# giving the cold part back saves and costs. Usage: scripts/run.sh [SECONDS]
#
# As root the program is a redis-server with about 1 GB of keys, of which the first 5 in 100 are read, the first
# of those most. Without root it is the bundled workload, seen by the coarser tracker that needs no privilege.
# THERMO=PROGRAM takes that build of thermo, and of thermo-lab beside it, instead of making one.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/zram.sh
. scripts/zram.sh

seconds=${1:-25}
recording=thermo.arrow
picture=heatmap.html
keys=1000000
hot_keys=50000
reads_per_second=80000
# A key is read every second or so: looks 50 ms apart see what looks 5 ms apart would miss, for less.
looks=(--sample 50ms --aggr 1s)
# To give memory back every page is looked at, each second or two: what is paged out is what was not read, exactly.
exact=(--cpu 4%)
min_age=5s
reclaim_seconds=30
settle_seconds=10

say() { printf '\n== %s\n' "$*"; }

build() {
    thermo=${THERMO:-${CARGO_TARGET_DIR:-target}/release/thermo}
    thermo_lab=$(dirname "$thermo")/thermo-lab
    [ -z "${THERMO:-}" ] || return 0
    scripts/deps.sh build
    say "building thermo (the first time takes some minutes)"
    scripts/cargo.sh build --release --locked --quiet -p thermo-cli -p thermo-lab
}

make_page() {
    "$thermo" report heatmap "$recording" --html "$picture" 2>/dev/null
    say "the heatmap as a page to move around in: $PWD/$picture"
    echo "More of the recording: $thermo report wss|idle|regions|info $recording"
}

# Without privilege: our own workload, our own user, per-mapping truth only.
run_workload() {
    say "workloads/stairs.cfg for $seconds s, seen by the tracker that needs no privilege (smaps: whole mappings)"
    "$thermo" run --tracker smaps --duration "${seconds}s" -o "$recording" -- \
        "$thermo_lab" workload --quiet workloads/stairs.cfg --duration "${seconds}s"
    make_page
    say "as root this sees single pages, of a redis-server, and gives its cold memory back: sudo make run"
}

cleanup() {
    set +e
    [ -z "${load_pid:-}" ] || { kill "$load_pid" && wait "$load_pid"; } 2>/dev/null
    [ -z "${redis_pid:-}" ] || { kill -KILL "$redis_pid" && wait "$redis_pid"; } 2>/dev/null
    remove_zram
    [ -z "${folder:-}" ] || rm -rf "$folder"
}

start_redis() {
    folder=$(mktemp -d)
    socket=$folder/redis.sock
    redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no --daemonize no --dir "$folder" \
        >"$folder/redis.log" 2>&1 &
    redis_pid=$!
    for _ in $(seq 600); do
        redis-cli -s "$socket" ping >/dev/null 2>&1 && return
        kill -0 "$redis_pid" 2>/dev/null || break
        sleep 0.1
    done
    cat "$folder/redis.log" >&2
    echo "redis-server does not answer" >&2
    exit 1
}

# The reads go on until they are asked what they measured.
start_reads() {
    python3 workloads/load/steady.py read --socket "$socket" --keys "$keys" \
        --hot "$hot_keys" --rate "$reads_per_second" >"$folder/latency" &
    load_pid=$!
    until grep -q reading "$folder/latency"; do
        kill -0 "$load_pid" 2>/dev/null || { echo "the reads of redis failed" >&2; exit 1; }
        sleep 0.1
    done
}

# Ends the reads: "p50 p99 p99.9", in milliseconds.
latency_of_reads() {
    kill "$load_pid" && wait "$load_pid" || { echo "the reads of redis failed" >&2; exit 1; }
    load_pid=
    latency=$(tail -n 1 "$folder/latency")
}

kib_of() { awk -v name="$1:" '$1 == name { print $2 }' "/proc/$redis_pid/status"; }

watch_redis() {
    say "watching it for $seconds s, while $reads_per_second reads a second go on"
    start_reads
    "$thermo" record --pid "$redis_pid" "${looks[@]}" --duration "${seconds}s" -o "$recording" 2>"$folder/told" ||
        { cat "$folder/told" >&2; exit 1; }
    latency_of_reads
    latency_before=$latency
    rss_before=$(kib_of VmRSS)
    "$thermo" report summary "$recording"
    make_page
}

reclaim_redis() {
    say "giving back what was not read for $min_age, to compressed swap (zram): $reclaim_seconds s"
    start_reads
    local TIMEFORMAT='%U %S'
    { time "$thermo" reclaim --pid "$redis_pid" "${exact[@]}" --min-age "$min_age" --duration "${reclaim_seconds}s" \
        --quota-ms 0 --quota-sz 0 --wmarks-high 1000 --wmarks-mid 1000 --wmarks-low 0 2>&3; } 3>&2 2>"$folder/cpu"
    latency_of_reads
    latency_meanwhile=$latency
    start_reads
    sleep "$settle_seconds"
    latency_of_reads
    latency_after=$latency
    rss_after=$(kib_of VmRSS)
    zram_after=$(zram_kib)
}

row() { printf '%-34s %10s %10s %12s\n' "$@"; }
mib() { echo "$(($1 / 1024)) MiB"; }
percentile() { echo "$(echo "$2" | cut -d' ' -f"$1") ms"; }

print_table() {
    local net=$((rss_after + zram_after)) cost
    cost=$("$thermo" report info "$recording" | sed -n 's/^own cost *\([0-9.]* %\).*/\1/p')
    say "what came of it"
    row '' before meanwhile after
    row 'memory of redis (RSS)' "$(mib "$rss_before")" '' "$(mib "$rss_after")"
    row 'what left it, compressed (zram)' '0 MiB' '' "$(mib "$zram_after")"
    row 'both together' "$(mib "$rss_before")" '' "$(mib "$net")"
    row 'a read takes (median)' "$(percentile 1 "$latency_before")" "$(percentile 1 "$latency_meanwhile")" "$(percentile 1 "$latency_after")"
    row '99 of 100 reads take at most' "$(percentile 2 "$latency_before")" "$(percentile 2 "$latency_meanwhile")" "$(percentile 2 "$latency_after")"
    printf '\nnet saving  %s, %d %% of what redis took\n' \
        "$(mib $((rss_before - net)))" "$((100 * (rss_before - net) / rss_before))"
    printf 'our CPU     %s of one CPU while watching; %s s to give back %s, compression included\n' \
        "$cost" "$(awk '{ print $1 + $2 }' "$folder/cpu")" "$(mib $((rss_before - rss_after)))"
}

run_redis() {
    trap cleanup EXIT
    trap 'exit 130' INT TERM HUP
    say "redis-server with $keys keys of 900 bytes (about 1 GB); the first $hot_keys of them are read"
    start_redis
    python3 workloads/load/steady.py fill --socket "$socket" --keys "$keys"
    watch_redis
    if make_zram 2G; then
        reclaim_redis
        print_table
    else
        echo "This kernel has no zram, so there is no swap of our own to page out to; the story ends here."
    fi
}

build
if [ "$(id -u)" -eq 0 ]; then
    scripts/deps.sh demo
    run_redis
else
    run_workload
fi
