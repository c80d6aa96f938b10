#!/usr/bin/env bash
# The product's story in a minute: where the hot and cold memory of a real program is, and, as root, what
# giving the cold part back saves and costs. Usage: scripts/run.sh [SECONDS]
#
# As root the program is a redis-server with about 1 GB of keys, of which 5 in 100 are read. Without root it is
# the bundled workload, seen by the coarser tracker that needs no privilege.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-30}
recording=thermo.arrow
picture=heatmap.html
keys=1000000
hot_keys=50000

say() { printf '\n== %s\n' "$*"; }

build() {
    scripts/deps.sh build
    scripts/cargo.sh build --release --locked --quiet -p thermocline-cli
    thermo=${CARGO_TARGET_DIR:-target}/release/thermo
}

pictures() {
    "$thermo" report heatmap "$recording"
    "$thermo" report wss "$recording"
    "$thermo" report heatmap "$recording" --html "$picture"
    say "the same as a page, with addresses and mapping names under the pointer: $PWD/$picture"
}

# Without privilege: our own workload, our own user, per-mapping truth only.
run_workload() {
    say "workloads/stairs.cfg for $seconds s, seen by the tracker that needs no privilege (smaps: coarse)"
    "$thermo" run --tracker smaps --duration "${seconds}s" -o "$recording" -- \
        "$thermo" workload workloads/stairs.cfg --duration "${seconds}s"
    pictures
    echo "As root this looks into a redis-server page by page and gives its cold memory back: sudo make run"
}

cleanup() {
    set +e
    [ -z "${load_pid:-}" ] || kill "$load_pid" 2>/dev/null
    [ -z "${redis_pid:-}" ] || { kill -KILL "$redis_pid" && wait "$redis_pid"; } 2>/dev/null
    [ -z "${zram:-}" ] || remove_zram
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

fill_redis() {
    redis-cli -s "$socket" eval "
        local value = string.rep('v', 900)
        for i = 0, $keys - 1 do redis.call('set', string.format('key:%012d', i), value .. i) end
        return $keys" 0 >/dev/null
}

# Reads of the first keys only, 5,000 a second at most, until it is stopped.
start_load() {
    while true; do
        redis-benchmark -s "$socket" -r "$hot_keys" -n 20000 -c 4 -q get key:__rand_int__ >/dev/null 2>&1 || break
        sleep 0.2
    done &
    load_pid=$!
}

# One line of percentiles of reads of the hot keys, in milliseconds.
latency() {
    redis-benchmark -s "$socket" -r "$hot_keys" -n 100000 -c 4 --csv get key:__rand_int__ 2>/dev/null | tail -n 1 |
        awk -F'","' '{ gsub(/"/, ""); n = split($0, f, ","); printf "p50 %s ms, p95 %s ms, p99 %s ms, max %s ms", f[n-3], f[n-2], f[n-1], f[n] }'
}

kib_of() { awk -v name="$1:" '$1 == name { print $2 }' "/proc/$redis_pid/status"; }
mib() { echo "$(($1 / 1024)) MiB"; }

# A compressed swap device of our own: what is paged out stays in memory, smaller.
make_zram() {
    [ -e /sys/class/zram-control ] || modprobe zram 2>/dev/null || true
    [ -e /sys/class/zram-control/hot_add ] || return 1
    zram=/dev/zram$(cat /sys/class/zram-control/hot_add)
    echo 2G >"/sys/block/${zram##*/}/disksize"
    mkswap "$zram" >/dev/null && swapon --priority 32000 "$zram"
}

remove_zram() {
    swapoff "$zram" 2>/dev/null
    echo "${zram##/dev/zram}" >/sys/class/zram-control/hot_remove
}

# KiB of memory that what was paged out still takes.
zram_kib() { awk '{ print int($3 / 1024) }' "/sys/block/${zram##*/}/mm_stat"; }

reclaim_story() {
    if ! make_zram; then
        zram=
        echo "This kernel has no zram, so there is no swap of our own to page out to; the story ends here."
        return
    fi
    local rss_before rss_after latency_before latency_after stored
    rss_before=$(kib_of VmRSS)
    latency_before=$(latency)
    say "giving back what was not read for 5 s, for $seconds s (thermo reclaim)"
    "$thermo" reclaim --pid "$redis_pid" --min-age 5s --quota-ms 0 --quota-sz 0 --wmarks-high 1000 --wmarks-mid 1000 --wmarks-low 0 \
        --duration "${seconds}s"
    rss_after=$(kib_of VmRSS)
    stored=$(zram_kib)
    latency_after=$(latency)

    say "what came of it"
    echo "memory of redis   before $(mib "$rss_before"), after $(mib "$rss_after") and $(mib "$stored") compressed"
    echo "net saving        $(mib $((rss_before - rss_after - stored))), $((100 * (rss_before - rss_after - stored) / rss_before)) %"
    echo "latency before    $latency_before"
    echo "latency after     $latency_after"
}

run_redis() {
    trap cleanup EXIT
    trap 'exit 130' INT TERM
    say "redis-server with $keys keys of 900 bytes; the first $hot_keys of them are read"
    start_redis
    fill_redis
    start_load
    say "looking at it for $seconds s"
    "$thermo" record --pid "$redis_pid" --duration "${seconds}s" -o "$recording"
    pictures
    "$thermo" report info "$recording"
    reclaim_story
}

build
if [ "$(id -u)" -eq 0 ]; then
    scripts/deps.sh demo
    run_redis
else
    run_workload
fi
