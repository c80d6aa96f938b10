#!/usr/bin/env bash
# The story of docs/guide/agent.md with real servers: observe redis and MariaDB, read the advice, let a policy
# act, see the net saving in the metrics, change the load, see the guard suspend the policy, undo. Every step
# prints a line with its figure. Exit code 1: a step failed. Needs root, zram, redis and MariaDB; swap is a
# zram device made for this. About 8 minutes.
#
# Usage: tests/story.sh [--keep]   (--keep: wait for Enter before the end, to look at the dashboard)
# Environment: OBSERVE (300 s), THERMO.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=benches/lib.bash
. benches/lib.bash
# shellcheck source=benches/servers.bash
. benches/servers.bash
# shellcheck source=scripts/zram.sh
. scripts/zram.sh

observe=${OBSERVE:-300}
port=${PORT:-9402}
for workload in redis mariadb; do
    absent=$(missing "$workload")
    [ -z "$absent" ] || { echo "SKIP: the story needs $absent"; exit 0; }
done
need_built "$thermo"
make_zram 4G || { echo "SKIP: this kernel has no zram"; exit 0; }
end() {
    end_all
    remove_zram
    rm -rf "$work"
}
trap end EXIT

fail() {
    echo "story: $1" >&2
    "$thermo" agent status --agent "$work/agent.sock" >&2 || true
    exit 1
}

agent() { "$thermo" agent "$@" --agent "$work/agent.sock"; }

# A figure of the agent: a Python expression of a, the answer as JSON.
ask() { # PATH EXPRESSION
    curl -sS --unix-socket "$work/agent.sock" "http://localhost$1" |
        python3 -c "import json,sys; a=json.load(sys.stdin); print($2)"
}

# Waits until a command succeeds.
wait_for() { # SECONDS WHY COMMAND...
    local seconds=$1 why=$2 begin=$SECONDS
    shift 2
    until "$@"; do
        [ $((SECONDS - begin)) -lt "$seconds" ] || fail "$why"
        sleep 1
    done
}

metric() { # NAME: the sum over all its samples with the redis policy
    curl -sS "http://127.0.0.1:$port/metrics" |
        awk -v name="$1" 'index($0, name "{") == 1 && /policy="cache"/ { sum += $NF } END { printf "%d\n", sum }'
}

set_sizes quick
redis_keys=400000
# A twentieth of the keys is read; the rest is idle.
begin redis-server --port 0 --unixsocket "$work/redis.sock" --save '' --appendonly no --daemonize no --dir "$work"
redis=$last
load_keys redis "$work/redis.sock" "$redis_keys" 512 hot:0.05 4000
workload_mariadb
cat >"$work/agent.toml" <<CONFIG
state_dir = "$work/state"
[http]
socket = "$work/agent.sock"
listen = "127.0.0.1:$port"
[[policy]]
name = "cache"
match = { command = "redis-server", exe = "**/redis-*" }
preset = "reclaim"
min_age = "30s"
guard = { max_refaults = "5%/min", resume_after = "30m" }
[[policy]]
name = "databases"
match = { command = "mariadbd" }
CONFIG
"$thermo" agent check "$work/agent.toml"
begin "$thermo" agent --config "$work/agent.toml"
wait_for 30 "the agent does not become ready" curl -sf -o "$work/ready" "http://127.0.0.1:$port/readyz"

is_watched() { [ "$(ask /api/v1/targets "len([t for t in a['targets'] if t['resident_bytes'] > 1 << 26])")" = 2 ]; }
wait_for 60 "redis and MariaDB are not both watched" is_watched
echo "1. observed: $(ask /api/v1/targets "', '.join(f\"{t['name']} {t['resident_bytes'] >> 20} MiB\" for t in a['targets'])")"
sleep "$observe"

before=$(ask /api/v1/targets "[t['resident_bytes'] for t in a['targets'] if t['policy'] == 'cache'][0]")
advice=$(ask "/api/v1/advice?target=redis-server&policy=cache" "a['advice']['why']")
echo "2. advice for redis: $advice"
"$thermo" advise --since "-$((observe))s" --target redis-server --state-dir "$work/state" >"$work/advice.txt" ||
    [ "$?" -eq 1 ] || fail "thermo advise --since failed"

agent mode cache act
saves() { [ "$(ask /api/v1/targets "int(any(t['net_saved_bytes'] > 16 << 20 for t in a['targets'] if t['policy'] == 'cache'))")" = 1 ]; }
wait_for 120 "redis saves nothing" saves
sleep 60
echo "3. acting: net saving $(ask /api/v1/targets "[t['net_saved_bytes'] >> 20 for t in a['targets'] if t['policy'] == 'cache'][0]") MiB of $((before >> 20)) MiB; Prometheus reads $(($(metric thermo_target_net_saved_bytes) >> 20)) MiB"
[ "$(metric thermo_target_net_saved_bytes)" -gt $((8 << 20)) ] || fail "the metric does not show the saving"

# The load changes: every key is read.
begin python3 workloads/load/key_value.py read --server redis --socket "$work/redis.sock" --keys "$redis_keys" --bytes 512 --pattern uniform --rate 20000
is_suspended() { [ "$(ask /api/v1/policies "int(a['policies'][0]['suspended'] is not None)")" = 1 ]; }
wait_for 180 "the guard does not suspend the policy" is_suspended
echo "4. load changed; suspended: $(ask /api/v1/policies "a['policies'][0]['suspended']")"

agent pause
"$thermo" pagein --pid "$redis" | tail -n 1 | sed 's/^/5. undone: /'
echo "6. ledger:"
agent ledger
if [ "${1:-}" = --keep ]; then
    read -r -p "The dashboard is at http://127.0.0.1:$port/. Enter ends the story. " _
fi
echo ok
