# Runs in-kernel DAMON and thermo one after the other on the same program in the same guest. Writes
# recordings, truth, CPU time and speed of the program to /out/contest, which tests/guest/contest.py evaluates
# outside. Emulation makes system calls expensive, which is a disadvantage for thermo. The numbers are printed
# and cannot fail the test.

contest=/out/contest
# Length of each arm, from the kernel's command line.
# shellcheck disable=SC2154
seconds=${contest_seconds:-24}

# Sets thread to the kdamond's thread id. thermo writes it to a file; DAMON's own file may be busy.
kdamond_is_known() {
    thread=$(head -n 1 /run/thermocline/kdamond 2>/dev/null | cut -d' ' -f3)
    [ "${thread:-0}" -gt 0 ] && [ -e "/proc/$thread/schedstat" ]
}
# CPU time of the thread in nanoseconds.
kdamond_cpu() { cut -d' ' -f1 "/proc/$thread/schedstat"; }
uptime_ms() { awk '{ printf "%d", $1 * 1000 }' /proc/uptime; }

# Number of operations that the program has done so far.
progress() {
    case $program in
        redis*) redis-cli -s /tmp/redis.sock info stats | tr -d '\r' | sed -n 's/^total_commands_processed://p' ;;
        *) awk '/accesses in/ { for (i = 1; i <= NF; i++) if ($i == "accesses") sum += $(i - 1) } END { printf "%.0f", sum }' /tmp/rate ;;
    esac
}

# Bytes that the kernel counts as referenced within a second. Clears all accessed bits, so call it between two
# arms.
referenced() {
    echo 1 >"/proc/$pid/clear_refs"
    sleep 1
    awk '$1 == "Referenced:" { sum += $2 } END { print sum * 1024 }' "/proc/$pid/smaps"
}

# Writes a result line: program, arm, round, operations, milliseconds, CPU percent of the kdamond.
write_arm() { echo "$program $*" >>$contest/arms; }

# The arm without monitoring.
run_alone() {
    local before begin
    before=$(progress) begin=$(uptime_ms)
    sleep $seconds
    write_arm alone 0 $(($(progress) - before)) $(($(uptime_ms) - begin)) 0
}

# Sets percent, the CPU time of the kdamond's thread.
run_kdamond() { # ROUND
    local before begin recorder cpu from
    before=$(progress) begin=$(uptime_ms)
    thermo record -o "$contest/$program-kdamond-$1.arrow" --tracker kdamond --pid "$pid" --duration "${seconds}s" 2>/tmp/stderr &
    recorder=$!
    kill_at_end "$recorder"
    wait_until "the kdamond runs" kdamond_is_known
    sleep 1
    cpu=$(kdamond_cpu) from=$(uptime_ms)
    sleep $((seconds - 6))
    cpu=$(($(kdamond_cpu) - cpu)) from=$(($(uptime_ms) - from))
    # The arm "same" uses it as budget, which must be at least 0.1 %.
    percent=$(awk -v cpu="$cpu" -v ms="$from" 'BEGIN { p = cpu / ms / 10000; printf "%.2f", p < 0.1 ? 0.1 : p }')
    wait "$recorder" || fail "record --tracker kdamond ended with $?: $(last_error)"
    write_arm kdamond "$1" $(($(progress) - before)) $(($(uptime_ms) - begin)) "$percent"
}

run_thermo_arm() { # ARM ROUND OPTIONS...
    local arm=$1 round=$2 before begin
    shift 2
    before=$(progress) begin=$(uptime_ms)
    run_thermo record -o "$contest/$program-$arm-$round.arrow" --tracker pte --pid "$pid" --duration "${seconds}s" "$@" ||
        fail "record ended with $?: $(last_error)"
    write_arm "$arm" "$round" $(($(progress) - before)) $(($(uptime_ms) - begin)) 0
}

# Runs thermo once before the first arm. QEMU's table of address translations grows with the TLB flushes it
# sees, so arms before the first flushes would run at a tenth of the speed of later arms.
warm_up() {
    run_thermo record -o /tmp/warm.arrow --tracker pte --pid "$pid" --duration 3s || fail "record ended with $?: $(last_error)"
}

run_all_arms() {
    warm_up
    run_alone
    case $program in redis*) write_arm referenced 1 "$(referenced)" 1000 0 ;; esac
    run_kdamond 1
    run_thermo_arm budget 1
    run_thermo_arm same 1 --cpu "$percent%"
    run_alone
    note "$program: $(grep -c "^$program " $contest/arms) arms"
}

run_pattern() { # NAME [OPTIONS of workload...]
    program=$1
    shift
    mkdir -p $contest
    rm -f /tmp/rate
    thermo-lab workload "/workloads/$program.cfg" --duration 30m --truth "$contest/$program.jsonl" --log-interval 500ms "$@" >/tmp/rate 2>/tmp/workload.stderr &
    pid=$!
    kill_at_end "$pid"
    wait_until "the first phase starts" grep -q 'accesses in' /tmp/rate
    run_all_arms
}

contest_hot_cold() { need_damon; run_pattern hot-cold; }
contest_stairs() { need_damon; run_pattern stairs; }
contest_zigzag() { need_damon; run_pattern zigzag; }
# A span of 0.1 s is too short for an emulated machine to touch all hot memory.
contest_many_small() { need_damon; run_pattern many-small --truth-span 1s; }
contest_moving() { need_damon; run_pattern moving; }
# With spans of 0.1 s the truth would be a hundred megabytes, which take longer to transfer than to generate.
contest_random() { need_damon; run_pattern random --truth-span 2s; }

start_redis() {
    need_damon
    command -v redis-benchmark >/dev/null || skip "redis is not in this initramfs: use tests/guest/contest.sh"
    mkdir -p $contest
    redis-server --port 0 --unixsocket /tmp/redis.sock --save '' --appendonly no >/dev/null &
    pid=$!
    kill_at_end "$pid"
    wait_until "redis responds" redis_responds
    fill_redis -n 200000 -r 200000 -d 500 -t set
}
fill_redis() { redis-benchmark -q -s /tmp/redis.sock -P 32 "$@" >/dev/null; }
# Sends requests in the background until the end of the test.
send_requests() {
    redis-benchmark -q -l -s /tmp/redis.sock -P 8 -c 4 "$@" >/dev/null 2>&1 &
    kill_at_end $!
}

# Reads a random tenth of the keys. They are scattered: nearly every page contains one.
contest_redis() {
    program=redis
    start_redis
    send_requests -r 20000 -t get
    run_all_arms
}

# Reads the newest tenth of the keys, which lie together.
contest_redis_recent() {
    program=redis-recent
    start_redis
    fill_redis -n 60000 -r 20000 set recent:__rand_int__ "$(printf '%0500d' 1)"
    send_requests -r 20000 get recent:__rand_int__
    run_all_arms
}
