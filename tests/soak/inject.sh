#!/usr/bin/env bash
# Injects ten thousand calls into each of several busy programs, then kills hundreds of tracers during
# injections. No program may crash, see a failed call or a changed register. Prints `ok` or `not ok` with
# figures for each check. Exit code 1: a check is not ok. Needs root and cc; uses java, node, redis-server and
# go if installed. Takes a few minutes on an idle machine. After LONGEST seconds of calls into a program, at
# least nine tenths of them must be done.
# Usage: tests/soak/inject.sh [PROGRAM...]
# CALLS=NUMBER, KILLS=NUMBER, LONGEST=SECONDS and INJECT=PROGRAM change the defaults.
set -euo pipefail
cd "$(dirname "$0")/../.."

calls=${CALLS:-10000} kills=${KILLS:-200} longest=${LONGEST:-300}
folder=$(mktemp -d)
failed=0 started=()
cleanup() {
    set +e
    exec 3>&-
    local pid
    for pid in ${started[@]+"${started[@]}"}; do kill -KILL "$pid" && wait "$pid"; done 2>/dev/null
    rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

if [ -z "${INJECT:-}" ]; then
    cargo build --quiet --release -p thermo-inject --example inject
    INJECT=${CARGO_TARGET_DIR:-target}/release/examples/inject
fi

verdict() { # TRUE-OR-FALSE WHAT FIGURES
    if [ "$1" = 1 ]; then echo "ok - $2: $3"; else echo "not ok - $2: $3"; failed=1; fi
}

# Prints an aligned range of 2 MiB in the largest writable anonymous mapping.
memory_range() { # PID
    python3 - "$1" <<'PY'
import re, sys
best, size = None, 0
for line in open(f"/proc/{sys.argv[1]}/maps"):
    found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0 *(\[heap\]|\[anon.*\])?$", line)
    if found:
        start, end = (int(found[n], 16) for n in (1, 2))
        start = -(-start >> 21) << 21 if start % (1 << 21) == 0 else (start >> 21) + 1 << 21
        if end - start > size:
            best, size = start, end - start
if size < 2 << 20:
    sys.exit("no writable anonymous mapping of 2 MiB")
print(hex(best), hex(best + (2 << 20)))
PY
}

# Injects calls into a program, then kills tracers at random moments.
soak() { # NAME PID
    local name=$1 pid=$2 range summary nth
    range=$(memory_range "$pid")
    # shellcheck disable=SC2086 # two words
    summary=$("$INJECT" "$pid" $range "$calls" "$longest" 2>&1 | tail -1) || true
    local made median failures
    made=$(sed -n 's/^calls=\([0-9]*\) .*/\1/p' <<<"$summary")
    failures=$(sed -n 's/.* failed=\([0-9]*\) .*/\1/p' <<<"$summary")
    median=$(sed -n 's/.*median_us=\([0-9]*\).*/\1/p' <<<"$summary")
    verdict "$([ "${made:-0}" -ge $((calls * 9 / 10)) ] && [ "${failures:-1}" = 0 ] && echo 1)" "$name makes the injected calls" "$summary"
    verdict "$([ "${median:-1000}" -lt 100 ] && echo 1)" "$name is stopped for less than 100 us (median)" \
        "${median:-?} us; load average $(cut -d' ' -f1 /proc/loadavg) on $(nproc) CPUs"
    for nth in $(seq 1 24); do
        # shellcheck disable=SC2086
        "$INJECT" "$pid" $range 1 10 "$nth" >/dev/null 2>&1 || true
    done 2>/dev/null
    for nth in $(seq 1 "$kills"); do
        # shellcheck disable=SC2086
        "$INJECT" "$pid" $range 1000 10 >/dev/null 2>&1 &
        sleep "0.0$((RANDOM % 90 + 10))"
        kill -KILL $! && wait $! || true
    done 2>/dev/null
    verdict "$(kill -0 "$pid" 2>/dev/null && echo 1)" "$name runs on after $((kills + 24)) killed tracers" "pid $pid"
}

# Starts a program that prints `ready`, soaks it, closes its input, and checks its output for SUCCESS.
program() { # NAME SUCCESS COMMAND...
    local name=$1 success=$2 pid
    shift 2
    rm -f "$folder/input"
    mkfifo "$folder/input"
    "$@" <"$folder/input" >"$folder/$name.out" 2>&1 &
    pid=$!
    started+=("$pid")
    exec 3>"$folder/input"
    until grep -q ready "$folder/$name.out" 2>/dev/null; do
        sleep 0.2
        kill -0 "$pid" || { verdict 0 "$name starts" "$(cat "$folder/$name.out")"; return; }
    done
    soak "$name" "$pid"
    exec 3>&-
    wait "$pid" || true
    verdict "$(grep -q "$success" "$folder/$name.out" && echo 1)" "$name finds no error" "$(tail -1 "$folder/$name.out")"
}

redis() {
    local port=7931 pid load
    redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --io-threads 3 >"$folder/redis.out" 2>&1 &
    pid=$!
    started+=("$pid")
    until redis-cli -p "$port" ping >/dev/null 2>&1; do sleep 0.2; done
    redis-benchmark -p "$port" -q -r 200000 -n 200000 -d 200 -t set >/dev/null 2>&1
    redis-benchmark -p "$port" -q -r 200000 -n 100000000 -c 20 -P 4 -t get,set,lpush >"$folder/load.out" 2>&1 &
    load=$!
    started+=("$load")
    soak redis "$pid"
    verdict "$(kill -0 "$load" 2>/dev/null && echo 1)" "the client of redis sees no error" "$(tr '\r' '\n' <"$folder/load.out" | tail -1)"
    kill "$load"
    wait "$load" || true
    verdict "$([ "$(redis-cli -p "$port" ping)" = PONG ] && echo 1)" "redis responds" "$(grep -ci -e crash -e error "$folder/redis.out" || true) errors in its log"
    redis-cli -p "$port" shutdown nosave || true
    wait "$pid" || true
}

has() { command -v "$1" >/dev/null || { echo "SKIP: $1 is not installed"; return 1; }; }

soak_program() { # PROGRAM
    case $1 in
        spin | calls)
            cc -O1 -pthread -o "$folder/registers" crates/inject/tests/targets/registers.c
            program "$1" intact "$folder/registers" "$1"
            ;;
        java) ! has java || program java 'TEST PASSED' java -Xmx512m tests/soak/busy/Busy.java ;;
        node) ! has node || program node 'TEST PASSED' node tests/soak/busy/busy.js ;;
        redis) ! has redis-server || redis ;;
        go)
            ! has go || {
                go build -o "$folder/busy" tests/soak/busy/busy.go
                program go 'TEST PASSED' "$folder/busy"
            }
            ;;
        *) echo "unknown program $1: use spin, calls, java, node, redis or go"; exit 2 ;;
    esac
}

[ $# -gt 0 ] || set -- spin calls java node redis go
for each in "$@"; do soak_program "$each"; done
exit "$failed"
