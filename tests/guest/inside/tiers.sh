# Memory tiers in a machine with two nodes: node 0 with the CPUs, node 1 without, as CXL memory appears.
# Emulation shows where memory is, and nothing of its speed.

need_two_nodes() {
    [ "$(cat /sys/devices/system/node/has_memory)" = 0-1 ] || skip "this machine does not have two memory nodes: choose a test of tiers.sh by name"
    # The kernel's NUMA balancing brings memory to the node of the CPU that accesses it, too.
    [ ! -e /proc/sys/kernel/numa_balancing ] || echo 0 >/proc/sys/kernel/numa_balancing
}

# Starts COMMAND, whose memory is on node 1, and allows both nodes once CONDITION holds. Sets pid.
start_on_slow_node() { # CONDITION COMMAND...
    local condition=$1
    shift
    echo +cpuset >/cgroup/cgroup.subtree_control || skip "this kernel has no cpusets"
    mkdir -p /cgroup/tiers
    # The last test may have left both nodes.
    echo 1 >/cgroup/tiers/cpuset.mems
    echo 0 >/cgroup/tiers/cgroup.procs
    "$@"
    echo 0 >/cgroup/cgroup.procs
    wait_until "$condition" $condition
    # Memory stays where it is when a node is added.
    echo 0-1 >/cgroup/tiers/cpuset.mems
}

# Sets on_fast and on_slow to the bytes of the program on each node.
placement() { # OPTIONS OF nodes...
    thermo-lab nodes --pid "$pid" "$@" >/tmp/placement 2>/tmp/stderr || fail "nodes ended with $?: $(last_error)"
    on_fast=$(sed -n 's/^node 0: \([0-9]*\) bytes/\1/p' /tmp/placement)
    on_slow=$(sed -n 's/^node 1: \([0-9]*\) bytes/\1/p' /tmp/placement)
    on_fast=${on_fast:-0} on_slow=${on_slow:-0}
}

# The share of bytes on the fast node, in percent.
share() { awk -v fast="$on_fast" -v slow="$on_slow" 'BEGIN { printf "%.1f", fast + slow ? 100 * fast / (fast + slow) : 0 }'; }

# Tiers until 95 % of the memory selected by OPTIONS is on the fast node, up to two minutes.
tier_until_near() { # OPTIONS OF nodes...
    local tries=0 tier status=0
    thermo tier --fast 0 --slow 1 --pid "$pid" --cpu 20% --json >/tmp/tier.json 2>/tmp/stderr &
    tier=$!
    kill_at_end "$tier"
    until [ $tries -ge 24 ]; do
        sleep 5
        tries=$((tries + 1))
        placement "$@"
        note "after $((tries * 5)) s: $on_fast bytes on the fast node, $on_slow on the slow one"
        [ $((on_fast * 100)) -lt $(((on_fast + on_slow) * 95)) ] || break
    done
    kill -INT "$tier"
    wait "$tier" || status=$?
    [ "$status" -eq 130 ] || fail "tier ended with $status, not 130: $(last_error)"
    note "promoted $(number_of promoted_bytes </tmp/tier.json), demoted $(number_of demoted_bytes </tmp/tier.json), moved back $(number_of moved_back_bytes </tmp/tier.json) bytes"
    placement "$@"
}

# The text in the records that are read all the time; no other memory of the server holds it.
mark=hot-record-of-the-test

check_hot_is_far() { # SERVER
    placement
    note "all of $1 before: $on_fast bytes on the fast node, $on_slow on the slow one"
    placement --contains "$mark"
    note "hot part before: $on_fast bytes on the fast node, $on_slow on the slow one"
    [ "$on_slow" -gt $((on_fast * 20)) ] || fail "the hot part does not begin on the slow node"
}

# Tiers until the hot part is near, and prints its share.
check_hot_comes_near() { # SERVER
    tier_until_near --contains "$mark"
    local hot hot_bytes
    hot=$(share) hot_bytes=$((on_fast + on_slow))
    placement
    note "all of $1 after: $on_fast bytes on the fast node, $on_slow on the slow one; hot part $hot_bytes bytes"
    grep -E ' N[01]=[0-9]{4,}' "/proc/$pid/numa_maps" | sed 's/^/# numa_maps: /'
    echo "share $name: $hot % of the hot bytes are on the fast node"
    [ "$(number_of promoted_bytes </tmp/tier.json)" -ge $((hot_bytes * 9 / 10)) ] || fail "the hot part was not moved by thermo: $(cat /tmp/tier.json)"
    awk -v share="$hot" 'BEGIN { exit !(share >= 95) }' || fail "only $hot % of the hot bytes are on the fast node"
}

start_tier_redis() {
    redis-server --port 0 --unixsocket /tmp/redis.sock --save '' --appendonly no >/dev/null &
    pid=$!
    kill_at_end "$pid"
}

# Starts redis on the slow node, fills it, and reads its newest records until the end of the test.
start_filled_redis() {
    command -v redis-benchmark >/dev/null || skip "redis is not in this initramfs: install it on the host"
    start_on_slow_node redis_responds start_tier_redis
    # redis is still in the group, so this memory would be free to go anywhere: fill it from the slow node.
    echo 1 >/cgroup/tiers/cpuset.mems
    redis-benchmark -q -s /tmp/redis.sock -P 32 -n 200000 -r 200000 -d 500 -t set >/dev/null || fail "redis cannot be filled"
    redis-benchmark -q -s /tmp/redis.sock -P 32 -n 60000 -r 20000 set recent:__rand_int__ "$mark$(printf '%0480d' 1)" >/dev/null || fail "redis cannot be filled"
    echo 0-1 >/cgroup/tiers/cpuset.mems
    check_hot_is_far redis
    redis-benchmark -q -l -s /tmp/redis.sock -P 8 -c 4 -r 20000 get recent:__rand_int__ >/dev/null 2>&1 &
    kill_at_end $!
}

tiers_hot_is_near() {
    need_two_nodes
    start_filled_redis
    check_hot_comes_near redis
}

phase_has_hot_only() { [ -s /tmp/truth.jsonl ] && [ -n "$(region hot)" ] && phase_is_hot_only; }
start_tier_workload() { # OPTIONS...
    rm -f /tmp/ready /tmp/truth.jsonl
    thermo-lab workload /hot-cold.cfg --truth /tmp/truth.jsonl "$@" >/tmp/ready 2>/tmp/workload.stderr &
    pid=$!
    kill_at_end "$pid"
}

huge_kib_of() { awk '$1 == "AnonHugePages:" { sum += $2 } END { print sum + 0 }' "/proc/$pid/smaps"; }

# Huge pages move whole: there are as many afterwards.
tiers_move_huge_pages() {
    need_two_nodes
    start_on_slow_node phase_has_hot_only start_tier_workload --huge-pages
    local huge
    huge=$(huge_kib_of)
    [ "$huge" -gt 0 ] || fail "the workload has no huge pages"
    placement --range "$(region hot)"
    [ "$on_fast" -eq 0 ] || fail "$on_fast bytes of the hot part begin on the fast node"
    tier_until_near --range "$(region hot)"
    [ $((on_fast * 100)) -ge $(((on_fast + on_slow) * 95)) ] || fail "only $(share) % of the hot bytes are on the fast node"
    placement --range "$(region cold)"
    note "cold part: $on_fast bytes on the fast node, $on_slow on the slow one; huge pages: $huge KiB before, $(huge_kib_of) KiB after"
    [ "$on_slow" -gt $((on_fast * 9)) ] || fail "$on_fast bytes of the cold part are on the fast node"
    [ "$(huge_kib_of)" -ge $((huge * 9 / 10)) ] || fail "huge pages were split: $huge KiB before, $(huge_kib_of) KiB after"
}

truth_has_a_line() { [ -s /tmp/truth.jsonl ]; }
start_moving_heat() {
    rm -f /tmp/ready /tmp/truth.jsonl
    thermo-lab workload /moving-heat.cfg --truth /tmp/truth.jsonl >/tmp/ready 2>/tmp/workload.stderr &
    pid=$!
    kill_at_end "$pid"
}
# True if the last span touched nothing outside this region.
is_hot() { # REGION
    local hot span
    hot=$(region "$1")
    span=$(last_truth | sed -n 's/.*"ranges":\[\[\([0-9]*,[0-9]*\)\]\]}$/\1/p')
    [ -n "$hot" ] && [ -n "$span" ] && [ "${span%,*}" -ge $((${hot%-*})) ] && [ "${span#*,}" -le $((${hot#*-})) ]
}
first_part_is_hot() { truth_has_a_line && is_hot one; }
is_near() { # REGION
    placement --range "$(region "$1")"
    [ $((on_fast * 100)) -ge $(((on_fast + on_slow) * 95)) ]
}

# Heat that moves to other memory is followed, and nothing goes back and forth.
tiers_follow_moving_heat() {
    need_two_nodes
    local tier status=0
    # Memory that is touched after this is put on the fast node at once.
    start_on_slow_node first_part_is_hot start_moving_heat
    thermo tier --fast 0 --slow 1 --pid "$pid" --cpu 20% --json >/tmp/tier.json 2>/tmp/stderr &
    tier=$!
    kill_at_end "$tier"
    wait_until "the first part is hot" is_hot one
    wait_until "the first part is near" is_near one
    note "first part: $on_fast bytes on the fast node, $on_slow on the slow one"
    wait_until "the second part is hot" is_hot two
    wait_until "the second part is near" is_near two
    note "second part: $on_fast bytes on the fast node, $on_slow on the slow one"
    placement --range "$(region gap)"
    note "never hot: $on_fast bytes on the fast node, $on_slow on the slow one"
    [ "$on_slow" -gt "$on_fast" ] || fail "memory that was never hot is on the fast node"
    kill -INT "$tier"
    wait "$tier" || status=$?
    [ "$status" -eq 130 ] || fail "tier ended with $status, not 130: $(last_error)"
    [ "$(number_of moved_back_bytes </tmp/tier.json)" -eq 0 ] || fail "memory moved back: $(cat /tmp/tier.json)"
    note "$(cat /tmp/tier.json)"
}

# Tiers for longer each time until memory is demoted. Needs wanted.
tier_until_demoted() { # OPTIONS...
    local seconds
    for seconds in 20 40 80; do
        run_thermo tier --fast 0 --slow 1 --pid "$pid" --cpu 20% --fast-used "$wanted%" --demote-age 3s --duration "${seconds}s" --json "$@" >/tmp/tier.json ||
            fail "tier $* ended with $?: $(last_error)"
        [ "$(number_of demoted_bytes </tmp/tier.json)" -le 33554432 ] || return 0
    done
    fail "tier $* demoted too little: $(cat /tmp/tier.json)"
}

# Idle memory leaves the fast node when more of it is used than wanted, and a dry run moves nothing.
tiers_demote_idle_memory() {
    need_two_nodes
    start_workload hot-cold.cfg
    placement --range "$(region cold)"
    [ "$on_slow" -lt "$on_fast" ] || fail "the cold part begins on the slow node"
    local before=$on_fast
    # Half of the cold part has to leave.
    local wanted
    wanted=$(awk '$3 == "MemTotal:" { total = $4 } $3 == "MemFree:" { free = $4 } END { print int(100 * (total - free) / total) - 6 }' /sys/devices/system/node/node0/meminfo)
    tier_until_demoted --dry-run
    placement --range "$(region cold)"
    [ "$on_fast" -eq "$before" ] || fail "the dry run moved memory: $before bytes before, $on_fast after"
    tier_until_demoted
    placement --range "$(region cold)"
    note "cold part: $on_fast bytes on the fast node, $on_slow on the slow one: $(cat /tmp/tier.json)"
    [ "$on_slow" -gt 33554432 ] || fail "the cold part is still on the fast node"
    [ "$on_fast" -gt 0 ] || fail "more of the cold part left than was wanted"
    placement --range "$(region hot)"
    [ "$on_fast" -gt "$on_slow" ] || fail "the hot part left the fast node: $on_slow bytes"
}

is_on_slow_node() {
    placement
    [ "$on_fast" -eq 0 ]
}

tiers_refuse_bad_input() {
    need_two_nodes
    local status=0
    start_on_slow_node phase_has_hot_only start_tier_workload
    # What was put on the fast node meanwhile moves, too, some time later.
    echo 1 >/cgroup/tiers/cpuset.mems
    wait_until "all memory is on the slow node" is_on_slow_node
    for options in "--fast 0 --slow 1" "--fast 0 --slow 7" "--fast 1 --slow 1"; do
        status=0
        # shellcheck disable=SC2086 # several words
        run_thermo tier $options --pid "$pid" --duration 1s || status=$?
        [ "$status" -eq 2 ] || fail "tier $options ended with $status, not 2: $(last_error)"
        last_error | grep -q node || fail "tier $options: the error does not name the node: $(last_error)"
        note "$options: $(last_error)"
    done
    is_on_slow_node || fail "memory moved: $on_fast bytes are on the fast node"
}

# Two schemes with opposite goals hold 60 % of the hot memory on the fast node.
tiers_divide_hot_memory() {
    need_two_nodes
    without_huge_pages
    start_on_slow_node phase_has_hot_only start_tier_workload
    placement --range "$(region hot)"
    [ "$on_fast" -eq 0 ] || fail "$on_fast bytes of the hot part begin on the fast node"
    local nid percent seconds
    for nid in 0 1; do
        percent=$((60 - 20 * nid))
        printf '[[scheme]]\naction = "migrate_hot"\ntarget_nid = %s\nnr_accesses = ["20%%", "100%%"]\n[scheme.quota]\nsz = "256K"\nreset_interval = "200ms"\ntuner = "temporal"\ngoals = [{ metric = "node_eligible_mem_bp", target_value = "%s%%", nid = %s }]\n' $nid $percent $nid
    done >/tmp/divide.toml
    for seconds in 10 20 40; do
        run_thermo schemes apply /tmp/divide.toml --pid "$pid" --cpu 20% --duration "${seconds}s" >/dev/null ||
            fail "schemes apply ended with $?: $(last_error)"
        placement --range "$(region hot)"
        note "after $seconds s more: $(share) % of the hot part is on the fast node"
        ! awk -v share="$(share)" 'BEGIN { exit !(share >= 55) }' || break
    done
    awk -v share="$(share)" 'BEGIN { exit !(share >= 55 && share <= 66) }' || fail "$(share) % of the hot part is on the fast node, not 60 %"
    placement --range "$(region cold)"
    [ "$on_slow" -gt $((on_fast * 9)) ] || fail "$on_fast bytes of the cold part are on the fast node"
}

# The files target_nid and dests of `thermo fs` move hot memory. Needs GUEST_MODULES="lzo-rle zram fuse".
tiers_move_by_control_files() {
    need_two_nodes
    [ -e /dev/fuse ] || skip "fuse is not in this initramfs: give GUEST_MODULES=\"lzo-rle zram fuse\""
    without_huge_pages
    start_on_slow_node phase_has_hot_only start_tier_workload
    cat >/tmp/migrate.sh <<-'FILES'
		set -e
		hot_is_near() { # PERCENT_FROM PERCENT_TO
		    thermo-lab nodes --pid "$pid" --range "$hot" | awk -v from="$1" -v to="$2" '
		        $2 == "0:" { fast = $3 } { sum += $3 } END { exit !(sum && fast * 100 >= from * sum && fast * 100 <= to * sum) }'
		}
		wait_for() { # PERCENT_FROM PERCENT_TO
		    for try in $(seq 120); do ! hot_is_near "$@" || return 0; sleep 0.5; done
		    thermo-lab nodes --pid "$pid" --range "$hot" >&2
		    return 1
		}
		cd /sys/kernel/mm/damon/admin/kdamonds
		echo 1 >nr_kdamonds
		echo 1 >0/contexts/nr_contexts
		cd 0/contexts/0
		echo 1 >targets/nr_targets
		echo "$pid" >targets/0/pid_target
		echo 20000 >monitoring_attrs/intervals/sample_us
		echo 400000 >monitoring_attrs/intervals/aggr_us
		echo 1 >schemes/nr_schemes
		for bound in sz age; do echo 18446744073709551615 >schemes/0/access_pattern/$bound/max; done
		echo 5 >schemes/0/access_pattern/nr_accesses/min
		echo 100 >schemes/0/access_pattern/nr_accesses/max
		echo migrate_hot >schemes/0/action
		echo 0 >schemes/0/target_nid
		echo on >../../state
		wait_for 90 100
		echo 2 >schemes/0/dests/nr_dests
		echo 1 >schemes/0/dests/0/weight
		echo 1 >schemes/0/dests/1/id
		echo 1 >schemes/0/dests/1/weight
		echo commit >../../state
		wait_for 40 60
		echo off >../../state
	FILES
    pid=$pid hot=$(region hot) thermo fs -- sh /tmp/migrate.sh 2>/tmp/stderr || fail "the files moved nothing: $(last_error)"
    placement --range "$(region hot)"
    note "hot part, divided by dests of equal weight: $on_fast bytes on the fast node, $on_slow on the slow one"
}

# The agent does the same for the programs of a policy, and its ledger has the bytes.
tiers_agent_keeps_hot_near() {
    need_two_nodes
    local agent status=0 promoted
    start_on_slow_node phase_has_hot_only start_tier_workload
    cat >/tmp/agent.toml <<TOML
budget = "20%"
state_dir = "/tmp/agent"
[http]
socket = "/tmp/agent.sock"
[[policy]]
name = "tiers"
match = { command = "thermo-lab" }
mode = "act"
preset = "tier"
fast = 0
slow = 1
TOML
    thermo agent --config /tmp/agent.toml 2>/tmp/stderr &
    agent=$!
    kill_at_end "$agent"
    wait_until "the agent has moved the hot part" is_near hot
    note "hot part: $on_fast bytes on the fast node, $on_slow on the slow one"
    run_thermo agent ledger --agent /tmp/agent.sock --json >/tmp/ledger.json || fail "ledger ended with $?: $(last_error)"
    note "$(cat /tmp/ledger.json)"
    kill -INT "$agent"
    wait "$agent" || status=$?
    [ "$status" -eq 130 ] || fail "the agent ended with $status, not 130: $(last_error)"
    promoted=$(sed -n 's/.*"acted_bytes":\[{"bytes":\([0-9]*\),"name":"migrate_hot"}.*/\1/p' /tmp/ledger.json)
    [ "${promoted:-0}" -ge $((on_fast * 9 / 10)) ] || fail "the ledger has only ${promoted:-no} promoted bytes"
}

tier_tests="tiers_hot_is_near tiers_mariadb_hot_is_near tiers_move_huge_pages tiers_follow_moving_heat tiers_demote_idle_memory tiers_refuse_bad_input tiers_divide_hot_memory tiers_agent_keeps_hot_near"
