# In-kernel DAMON and thermo, one after the other on the same program in the same guest: what each recorded, what
# truly happened, what it cost and how much the program slowed down are left in /out/contest for contest.py, which
# judges outside. Emulation makes system calls dear, which is to our disadvantage; the numbers are told, not judged.

contest=/out/contest
# Of each arm, from the kernel's command line.
# shellcheck disable=SC2154
seconds=${contest_seconds:-24}

# Sets thread, the kdamond's: thermo notes it, and the tree's own file is busy now and then.
kdamond_is_known() {
    thread=$(head -n 1 /run/thermocline/kdamond 2>/dev/null | cut -d' ' -f3)
    [ "${thread:-0}" -gt 0 ] && [ -e "/proc/$thread/schedstat" ]
}
# CPU nanoseconds of its thread so far.
kdamond_cpu() { cut -d' ' -f1 "/proc/$thread/schedstat"; }
uptime_ms() { awk '{ printf "%d", $1 * 1000 }' /proc/uptime; }

# What the program has done so far: a number that only grows.
progress() {
    case $program in
        redis*) redis-cli -s /tmp/redis.sock info stats | tr -d '\r' | sed -n 's/^total_commands_processed://p' ;;
        *) awk '/accesses in/ { for (i = 1; i <= NF; i++) if ($i == "accesses") sum += $(i - 1) } END { printf "%.0f", sum }' /tmp/rate ;;
    esac
}

# Bytes touched within a second by the kernel's own count. Between two arms: it takes all accessed marks off.
referenced() {
    echo 1 >"/proc/$pid/clear_refs"
    sleep 1
    awk '$1 == "Referenced:" { sum += $2 } END { print sum * 1024 }' "/proc/$pid/smaps"
}

told() { echo "$program $*" >>$contest/arms; }

# An arm in which nobody looks.
nobody() {
    local before begin
    before=$(progress) begin=$(uptime_ms)
    sleep $seconds
    told nobody 0 $(($(progress) - before)) $(($(uptime_ms) - begin)) 0
}

# Sets percent, the CPU of the kdamond's thread.
by_kdamond() { # ROUND
    local before begin recorder cpu from
    before=$(progress) begin=$(uptime_ms)
    thermo record -o "$contest/$program-kdamond-$1.arrow" --tracker kdamond --pid "$pid" --duration "${seconds}s" 2>/tmp/stderr &
    recorder=$!
    to_be_stopped "$recorder"
    wait_until "a kdamond runs" kdamond_is_known
    sleep 1
    cpu=$(kdamond_cpu) from=$(uptime_ms)
    sleep $((seconds - 6))
    cpu=$(($(kdamond_cpu) - cpu)) from=$(($(uptime_ms) - from))
    # Ours is given no less than it takes as a budget.
    percent=$(awk -v cpu="$cpu" -v ms="$from" 'BEGIN { p = cpu / ms / 10000; printf "%.2f", p < 0.1 ? 0.1 : p }')
    wait "$recorder" || fail "record by kdamond ended with $?: $(last_words)"
    told kdamond "$1" $(($(progress) - before)) $(($(uptime_ms) - begin)) "$percent"
}

by_thermo() { # ARM ROUND OPTIONS...
    local arm=$1 round=$2 before begin
    shift 2
    before=$(progress) begin=$(uptime_ms)
    thermo_says record -o "$contest/$program-$arm-$round.arrow" --tracker pte --pid "$pid" --duration "${seconds}s" "$@" ||
        fail "record ended with $?: $(last_words)"
    told "$arm" "$round" $(($(progress) - before)) $(($(uptime_ms) - begin)) 0
}

# An emulated processor keeps translations of addresses in a table that grows with the flushes it sees: without this, what
# came before the first of ours would run at a tenth of the speed of what came behind it.
warm_up() {
    thermo_says record -o /tmp/warm.arrow --tracker pte --pid "$pid" --duration 3s || fail "record ended with $?: $(last_words)"
}

all_arms() {
    warm_up
    nobody
    case $program in redis*) told referenced 1 "$(referenced)" 1000 0 ;; esac
    by_kdamond 1
    by_thermo budget 1
    by_thermo same 1 --cpu "$percent%"
    nobody
    note "$program: $(grep -c "^$program " $contest/arms) arms"
}

on_pattern() { # NAME [OPTIONS of workload...]
    program=$1
    shift
    mkdir -p $contest
    rm -f /tmp/rate
    thermo-lab workload "/workloads/$program.cfg" --duration 30m --truth "$contest/$program.jsonl" --log-interval 500ms "$@" >/tmp/rate 2>/tmp/workload.stderr &
    pid=$!
    to_be_stopped "$pid"
    wait_until "the first phase has begun" grep -q 'accesses in' /tmp/rate
    all_arms
}

contest_hot_cold() { need_damon; on_pattern hot-cold; }
contest_stairs() { need_damon; on_pattern stairs; }
contest_zigzag() { need_damon; on_pattern zigzag; }
# In a tenth of a second an emulated machine does not come round to all that is hot.
contest_many_small() { need_damon; on_pattern many-small --truth-span 1s; }
contest_moving() { need_damon; on_pattern moving; }
# Of a tenth of a second it would be a hundred megabytes, which take longer to hand out than to make.
contest_random() { need_damon; on_pattern random --truth-span 2s; }

redis_answers() { redis-cli -s /tmp/redis.sock ping 2>/dev/null | grep -q PONG; }

start_redis() {
    need_damon
    command -v redis-benchmark >/dev/null || skip "there is no redis in this initramfs"
    mkdir -p $contest
    redis-server --port 0 --unixsocket /tmp/redis.sock --save '' --appendonly no >/dev/null &
    pid=$!
    to_be_stopped "$pid"
    wait_until "redis answers" redis_answers
    load_redis -n 200000 -r 200000 -d 500 -t set
}
load_redis() { redis-benchmark -q -s /tmp/redis.sock -P 32 "$@" >/dev/null; }
# Asks on and on.
ask_redis() {
    redis-benchmark -q -l -s /tmp/redis.sock -P 8 -c 4 "$@" >/dev/null 2>&1 &
    to_be_stopped $!
}

# A tenth of the keys is read again and again, of those that lie among all others: nearly every page has one.
contest_redis() {
    program=redis
    start_redis
    ask_redis -r 20000 -t get
    all_arms
}

# A tenth of the keys, which came last and lie together.
contest_redis_recent() {
    program=redis-recent
    start_redis
    load_redis -n 60000 -r 20000 set recent:__rand_int__ "$(printf '%0500d' 1)"
    ask_redis -r 20000 get recent:__rand_int__
    all_arms
}
