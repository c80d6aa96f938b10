#!/usr/bin/env bash
# Demonstration: shows the hot and cold memory of a real program and, as root, the savings and cost of
# reclaiming the cold part. Usage: scripts/run.sh [SECONDS]
#
# As root the program is a redis-server with about 1 GB of keys. A client reads the first 5 % of the keys, the
# first ones most often. Without root it is the bundled workload, monitored by the unprivileged tracker smaps.
# THERMO=PROGRAM uses that build of thermo, and thermo-lab from the same folder, instead of building them.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/zram.sh
. scripts/zram.sh

# Two runs would write the same recording. The lock is on the folder of the checkout.
exec 9<.
if ! flock --nonblock 9; then
    echo "run: another run of this checkout is in progress: wait for it to end" >&2
    exit 1
fi

seconds=${1:-25}
recording=thermo.arrow
heatmap=heatmap.html
# RUN_KEYS: a smaller demonstration, for tests.
keys=${RUN_KEYS:-1000000}
hot_keys=$((keys / 20))
reads_per_second=80000
# For reclaim: passes of a third of a second, so that only pages that were not read are paged out.
reclaim_budget=(--cpu 4%)
min_age=5s
reclaim_seconds=30
settle_seconds=10

say() { printf '\n== %s\n' "$*"; }

build() {
    thermo=${THERMO:-${CARGO_TARGET_DIR:-target}/release/thermo}
    thermo_lab=$(dirname "$thermo")/thermo-lab
    [ -z "${THERMO:-}" ] || return 0
    scripts/deps.sh build
    [ -x "$thermo" ] || echo "run: the first build takes 5 to 10 minutes on two CPUs"
    say "building thermo"
    scripts/cargo.sh build --release --locked --quiet -p thermo-cli -p thermo-lab
}

# What to do after the demonstration. TARGET: flags that name a program.
say_next() { # TARGET
    say "what to do next"
    echo "For a program of yours, in place of --pid PID also --unit UNIT or --cgroup GROUP:"
    echo "  $thermo record $1 --duration 1m && $thermo report idle $recording   how much is idle, and for how long"
    echo "  $thermo advise $1      what paging it out would save and cost, and which age to set"
    echo "  sudo make install           install it; docs/guide/service.md: leave it on"
    echo "Guides by task: docs/README.md"
}

make_page() {
    "$thermo" report heatmap "$recording" --html "$heatmap" 2>/dev/null
    # The page is readable by its owner only.
    [ -z "${SUDO_UID:-}" ] || chown --no-dereference "$SUDO_UID" "$heatmap"
    say "interactive heatmap: $PWD/$heatmap"
    echo "More reports of the recording: $thermo report wss|idle|regions|info $recording"
}

# Without root: the bundled workload, at the granularity of mappings.
run_workload() {
    say "workloads/stairs.cfg for $seconds s, monitored without root (tracker smaps: whole mappings)"
    "$thermo" run --tracker smaps --duration "${seconds}s" -o "$recording" -- \
        "$thermo_lab" workload --quiet workloads/stairs.cfg --duration "${seconds}s"
    make_page
    say "as root it monitors single pages of a redis-server and reclaims its cold memory: sudo make run"
    say_next "--tracker smaps --pid PID"
}

cleanup() {
    set +e
    [ -z "${load_pid:-}" ] || { kill "$load_pid" && wait "$load_pid"; } 2>/dev/null
    [ -z "${redis_pid:-}" ] || { kill -KILL "$redis_pid" && wait "$redis_pid"; } 2>/dev/null
    remove_zram
    [ -z "${folder:-}" ] || rm -rf "$folder"
}

# Runs a program that the kernel kills when this script ends, however it ends.
while_script_lives() { exec setpriv --pdeathsig KILL "$@"; }

start_redis() {
    folder=$(mktemp -d)
    socket=$folder/redis.sock
    while_script_lives redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no --daemonize no --dir "$folder" \
        >"$folder/redis.log" 2>&1 &
    redis_pid=$!
    for _ in $(seq 600); do
        redis-cli -s "$socket" ping >/dev/null 2>&1 && return
        kill -0 "$redis_pid" 2>/dev/null || break
        sleep 0.1
    done
    cat "$folder/redis.log" >&2
    echo "redis-server does not respond" >&2
    exit 1
}

# Starts the client that reads keys. latency_of_reads ends it.
start_reads() {
    while_script_lives python3 workloads/load/steady.py read --socket "$socket" --keys "$keys" \
        --hot "$hot_keys" --rate "$reads_per_second" >"$folder/latency" &
    load_pid=$!
    until grep -q reading "$folder/latency"; do
        kill -0 "$load_pid" 2>/dev/null || { echo "the redis client failed" >&2; exit 1; }
        sleep 0.1
    done
}

# Ends the client and sets latency to its "p50 p99 p99.9", in milliseconds.
latency_of_reads() {
    kill "$load_pid" && wait "$load_pid" || { echo "the redis client failed" >&2; exit 1; }
    load_pid=
    latency=$(tail -n 1 "$folder/latency")
}

kib_of() { awk -v name="$1:" '$1 == name { print $2 }' "/proc/$redis_pid/status"; }

monitor_redis() {
    say "monitoring redis-server for $seconds s at $reads_per_second reads per second"
    start_reads
    "$thermo" record --pid "$redis_pid" --duration "${seconds}s" -o "$recording" \
        2>"$folder/stderr" || { cat "$folder/stderr" >&2; exit 1; }
    latency_of_reads
    latency_before=$latency
    rss_before=$(kib_of VmRSS)
    "$thermo" report summary "$recording"
    make_page
}

reclaim_redis() {
    say "paging out memory that was idle for $min_age to compressed swap (zram), for $reclaim_seconds s"
    start_reads
    local TIMEFORMAT='%U %S'
    { time "$thermo" reclaim --pid "$redis_pid" "${reclaim_budget[@]}" --min-age "$min_age" --duration "${reclaim_seconds}s" \
        --quota-ms 0 --quota-sz 0 --wmarks-high 1000 --wmarks-mid 1000 --wmarks-low 0 2>&3; } 3>&2 2>"$folder/cpu"
    latency_of_reads
    latency_during=$latency
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
    say "result"
    row '' before during after
    row 'memory of redis (RSS)' "$(mib "$rss_before")" '' "$(mib "$rss_after")"
    row 'paged out, compressed (zram)' '0 MiB' '' "$(mib "$zram_after")"
    row 'total' "$(mib "$rss_before")" '' "$(mib "$net")"
    row 'read latency, median' "$(percentile 1 "$latency_before")" "$(percentile 1 "$latency_during")" "$(percentile 1 "$latency_after")"
    row 'read latency, 99th percentile' "$(percentile 2 "$latency_before")" "$(percentile 2 "$latency_during")" "$(percentile 2 "$latency_after")"
    printf '\nnet saving  %s, %d %% of the memory of redis\n' \
        "$(mib $((rss_before - net)))" "$((100 * (rss_before - net) / rss_before))"
    printf 'own CPU     %s of one CPU for monitoring; %s s to page out %s, including compression\n' \
        "$cost" "$(awk '{ print $1 + $2 }' "$folder/cpu")" "$(mib $((rss_before - rss_after)))"
}

run_redis() {
    trap cleanup EXIT
    trap 'exit 130' INT TERM HUP
    say "redis-server with $keys keys of 900 bytes (about 1 GB); a client reads the first $hot_keys"
    start_redis
    python3 workloads/load/steady.py fill --socket "$socket" --keys "$keys"
    monitor_redis
    if make_zram 2G; then
        reclaim_redis
        print_table
    else
        echo "This kernel has no zram, so there is no swap to page out to: reclaim is not demonstrated."
    fi
    say_next "--pid PID"
}

echo "run: shows the hot and cold memory of a real program, in about $(((seconds + reclaim_seconds + 60) / 60)) minutes"
build
if [ "$(id -u)" -eq 0 ]; then
    scripts/deps.sh demo
    run_redis
else
    run_workload
fi
