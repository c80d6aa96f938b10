# Memory tiering by thermo, by the kernel's DAMON, by its NUMA balancing and by memtierd, one after the other
# with the same programs in the same guest with two nodes. Prints a line for each arm, of which
# tests/guest/tiers_contest.py makes a table. It measures placement, and cannot fail because of a figure.
#
# The hot part of the program begins on the slow node. The fast node is full of idle memory of a second
# program, except for $room_mib: so memory has to leave before the hot part fits.

room_mib=40
damon=/sys/kernel/mm/damon/admin/kdamonds
demotion=/sys/kernel/mm/numa/demotion_enabled
balancing=/proc/sys/kernel/numa_balancing
# From the kernel's command line: the length of each arm in seconds, and the arms.
# shellcheck disable=SC2154
seconds=${contest_seconds:-60}
# shellcheck disable=SC2154
arms=$(echo "${contest_arms:-alone,thermo,damon,damon_fast,numa,memtierd}" | tr ',' ' ')

free_mib() { awk '$3 == "MemFree:" { print int($4 / 1024) }' "/sys/devices/system/node/node$1/meminfo"; }

# Starts the program with the idle memory, and stops it when all of that was touched: an emulated machine may
# need a minute. Sets filler.
fill_fast_node() {
    local size
    # With huge pages, the kernel keeps 5 % of so little memory free, and much less of a usual machine's.
    echo 8192 >/proc/sys/vm/min_free_kbytes
    mkdir -p /cgroup/filler
    echo 0 >/cgroup/filler/cpuset.mems
    size=$((($(free_mib 0) - room_mib) << 20))
    printf 'idle, %d\n\ntouch all\n100000000\nidle, 0, 4096, 1\n' "$size" >/tmp/filler.cfg
    echo 0 >/cgroup/filler/cgroup.procs
    thermo-lab workload /tmp/filler.cfg >/dev/null 2>/tmp/stderr &
    filler=$!
    echo 0 >/cgroup/cgroup.procs
    kill_at_end "$filler"
    poll_until is_filled $((size >> 12)) || fail "the fast node was not filled in two minutes: $(free_mib 0) MiB are free; $(dmesg | grep -i 'out of memory' | tail -n 1)"
    kill -STOP "$filler"
    note "idle memory: $((size >> 20)) MiB, $(awk '$1 == "AnonHugePages:" { sum += $2 } END { print int(sum / 1024) }' "/proc/$filler/smaps") in huge pages; free: $(free_mib 0) MiB on the fast node, $(free_mib 1) MiB on the slow one"
}
is_filled() { [ -e "/proc/$filler" ] && [ "$(pages_on 0 "$filler")" -ge "$1" ]; } # PAGES

# Brings all memory to where it was before the first arm. The kernel moves it when the allowed nodes change.
reset_placement() {
    echo 1 >/cgroup/tiers/cpuset.mems
    wait_until "the program is on the slow node" is_mostly_on_slow_node
    echo 0-1 >/cgroup/tiers/cpuset.mems
    echo 0 >/cgroup/filler/cpuset.mems
    wait_until "the idle memory is on the fast node" filler_is_on_fast_node
    echo 0-1 >/cgroup/filler/cpuset.mems
}
is_mostly_on_slow_node() { [ "$(pages_on 1 "$pid")" -gt $(($(pages_on 0 "$pid") * 20)) ]; }
filler_is_on_fast_node() { [ "$(pages_on 0 "$filler")" -gt $(($(pages_on 1 "$filler") * 50)) ]; }
# Much faster than asking for each page.
pages_on() { # NODE PID
    grep -o " N$1=[0-9]*" "/proc/$2/numa_maps" | awk -F= '{ sum += $2 } END { print sum + 0 }'
}

counter() { awk -v name="$1" '$1 == name { print $2 }' /proc/vmstat; }
# CPU time of all threads of a process, and of the program in the kernel, in milliseconds.
cpu_ms() { awk '{ print ($14 + $15) * 10 }' "/proc/$1/stat"; }
system_ms() { awk '{ print $15 * 10 }' "/proc/$pid/stat"; }
# CPU time of all threads of the kernel, in milliseconds. A thread may end meanwhile.
kernel_ms() { cat /proc/[0-9]*/stat 2>/dev/null | awk '$4 == 2 { sum += $14 + $15 } END { print sum * 10 }'; }
milliseconds() { awk '{ printf "%d", $1 * 1000 }' /proc/uptime; }

# Each arm has a function that begins, and one that ends. The second sets tool_ms if a program of its own does
# the work.
begin_alone() { :; }
end_alone() { :; }

begin_thermo() {
    thermo tier --fast 0 --slow 1 --pid "$pid" --pid "$filler" --cpu "${thermo_cpu:-20%}" --json >/tmp/tier.json 2>/tmp/stderr &
    tier=$!
    kill_at_end "$tier"
}
end_thermo() {
    local status=0
    tool_ms=$(cpu_ms "$tier")
    kill -INT "$tier"
    wait "$tier" || status=$?
    [ "$status" -eq 130 ] || fail "tier ended with $status, not 130: $(last_error)"
    note "$(cat /tmp/tier.json)"
}
# The default budget. In an emulated machine, system calls are many times slower.
begin_thermo_default() { thermo_cpu=1% begin_thermo; }
end_thermo_default() { end_thermo; }

# The physical addresses of a node: "BEGIN END".
addresses_of() { # NODE
    awk -v node="$1," '$1 == "Node" { on = $2 == node } on && $1 == "spanned" { n = $2 } on && $1 == "start_pfn:" && n {
        if (!end || $2 < begin) begin = $2
        if ($2 + n > end) end = $2 + n
    } END { printf "%.0f %.0f\n", begin * 4096, end * 4096 }' /proc/zoneinfo
}

# Starts a kdamond that moves memory of one node to another: hot memory, of an access rate of at least 5 %, or
# cold memory, which was not accessed for 10 s. Needs sample_us, aggr_us, update_us; the quota: quota_ms each
# quota_reset_ms.
start_tier_kdamond() { # NUMBER migrate_hot|migrate_cold FROM TO
    local context=$damon/$1/contexts/0 scheme=$damon/$1/contexts/0/schemes/0 addresses
    local max=18446744073709551615 min_accesses=1 max_accesses=20 min_age=0 is_young=N
    [ "$2" = migrate_hot ] || min_accesses=0 max_accesses=0 min_age=$((10000000 / aggr_us)) is_young=Y
    addresses=$(addresses_of "$3")
    write "$damon/$1" contexts/nr_contexts 1
    write "$context" operations paddr targets/nr_targets 1 schemes/nr_schemes 1 \
        monitoring_attrs/intervals/sample_us "$sample_us" monitoring_attrs/intervals/aggr_us "$aggr_us" \
        monitoring_attrs/intervals/update_us "$update_us" \
        monitoring_attrs/nr_regions/max 10000 monitoring_attrs/nr_regions/min 100
    write "$context/targets/0/regions" nr_regions 1 0/start "${addresses% *}" 0/end "${addresses#* }"
    write "$scheme" action "$2" target_nid "$4" access_pattern/sz/min 4096 access_pattern/sz/max $max \
        access_pattern/nr_accesses/min $min_accesses access_pattern/nr_accesses/max $max_accesses \
        access_pattern/age/min $min_age access_pattern/age/max 4294967295
    # The last check before a page moves: was it accessed meanwhile?
    write "$scheme" filters/nr_filters 1 filters/0/type young filters/0/matching $is_young
    write "$scheme/quotas" ms "$quota_ms" bytes 53687091200 reset_interval_ms "$quota_reset_ms" \
        weights/sz_permil 0 weights/nr_accesses_permil 0 weights/age_permil 10
    write "$damon/$1" state on
}
write() { # FOLDER FILE VALUE [FILE VALUE...]
    local folder=$1
    shift
    while [ $# -gt 0 ]; do
        echo "$2" >"$folder/$1" || fail "$folder/$1 does not take $2"
        shift 2
    done
}
# The parameters of SK hynix's HMSDK, for which these actions were made: intervals of 100 ms, 2 s and 20 s, 1
# s of CPU time in 20 s for demotion and 2 s for promotion. One differs: memory is cold after 10 s as with
# thermo, not after 30 s.
begin_damon() {
    local sample_us=100000 aggr_us=2000000 update_us=20000000 quota_reset_ms=20000
    write $damon nr_kdamonds 2
    quota_ms=1000 start_tier_kdamond 0 migrate_cold 0 1
    quota_ms=2000 start_tier_kdamond 1 migrate_hot 1 0
}
# The intervals of the kernel's own sample of tiering (samples/damon/mtier.c, Linux 6.16), with the same
# shares of CPU time. Its goals, the used and the free share of a node, are not in 6.12.
begin_damon_fast() {
    local sample_us=5000 aggr_us=100000 update_us=1000000 quota_reset_ms=1000
    write $damon nr_kdamonds 2
    quota_ms=50 start_tier_kdamond 0 migrate_cold 0 1
    quota_ms=100 start_tier_kdamond 1 migrate_hot 1 0
}
end_damon_fast() { end_damon; }
end_damon() {
    local nth
    for nth in 0 1; do
        echo update_schemes_stats >$damon/$nth/state
        note "$(cat $damon/$nth/contexts/0/schemes/0/action): $(grep -H . $damon/$nth/contexts/0/schemes/0/stats/* | sed 's|.*/||' | tr '\n' ' ')"
        echo off >$damon/$nth/state
    done
    echo 0 >$damon/nr_kdamonds
}

# NUMA balancing of tiers: faults find what is accessed, reclaim of the fast node demotes.
begin_numa() {
    echo 1 >$demotion
    echo 2 >$balancing
}
end_numa() {
    echo 0 >$balancing
    echo 0 >$demotion
}

# memtierd's policy by age, with the tracker that this kernel has: pages that were written to (soft-dirty).
# The values are those of its sample configuration; one differs, memory is idle after 10 s as with thermo.
begin_memtierd() {
    cat >/tmp/memtierd.yaml <<YAML
policy:
  name: age
  config: |
    intervalms: 5000
    pidwatcher:
      name: pidlist
      config: |
        pids: [$pid, $filler]
    idledurationms: 10000
    idlenumas: [1]
    activedurationms: 10000
    activenumas: [0]
    tracker:
      name: softdirty
      config: |
        pagesinregion: 256
        maxcountperregion: 0
        scanintervalms: 4000
        regionsupdatems: 0
        skippageprob: 0
        pagemapreadahead: 0
    mover:
      intervalms: 20
      bandwidth: 200
YAML
    memtierd -config /tmp/memtierd.yaml -l /tmp/memtierd.log 2>/tmp/stderr &
    memtierd=$!
    kill_at_end "$memtierd"
}
end_memtierd() {
    [ -e "/proc/$memtierd" ] || fail "memtierd ended: $(last_error) $(tail -n 2 /tmp/memtierd.log)"
    tool_ms=$(cpu_ms "$memtierd")
    kill -KILL "$memtierd"
    note "memtierd: $(tail -n 2 /tmp/memtierd.log | tr '\n' ' ')"
}

missing_for() { # ARM
    case "$1" in
        memtierd) command -v memtierd >/dev/null || echo "it is not in this initramfs" ;;
        damon*) [ -e /sys/kernel/mm/damon/admin ] || echo "this kernel has no DAMON" ;;
        numa) [ -e $balancing ] && [ -e $demotion ] || echo "this kernel has no NUMA balancing" ;;
    esac
}

# Runs one arm and prints its line. Shares are those on the fast node in percent: of the hot bytes at the end,
# of the accesses at the end, and their mean over the arm. Then pages moved, and by the kernel's own count
# promoted and demoted, and CPU times in ms: the tool's own, all threads of the kernel, the program in the
# kernel.
run_arm() { # ARM
    local reason moved promoted demoted kernel system begin tool_ms=0 sum=0 samples=0 course= mean
    reason=$(missing_for "$1")
    [ -z "$reason" ] || { note "$1: left out: $reason"; return 0; }
    reset_load
    reset_placement
    moved=$(counter pgmigrate_success) promoted=$(counter pgpromote_success) demoted=$(demoted_pages)
    kernel=$(kernel_ms) system=$(system_ms) begin=$(milliseconds)
    "begin_$1"
    until [ $(($(milliseconds) - begin)) -ge $((seconds * 1000)) ]; do
        sleep 4
        [ -z "$is_sampled" ] || sample
    done
    moved=$(($(counter pgmigrate_success) - moved)) promoted=$(($(counter pgpromote_success) - promoted))
    demoted=$(($(demoted_pages) - demoted)) kernel=$(($(kernel_ms) - kernel)) system=$(($(system_ms) - system))
    begin=$(($(milliseconds) - begin))
    "end_$1"
    measure
    mean=$(awk -v sum="$sum" -v n="$samples" 'BEGIN { if (n) printf "%.1f", sum / n; else printf "-" }')
    echo "# arm $program $1: ms $begin hot $hot accesses $accesses mean $mean moved $moved promoted $promoted demoted $demoted tool $tool_ms kernel $kernel system $system"
    note "free on the fast node: $(free_mib 0) MiB; accesses over the time:$course"
}
demoted_pages() { awk '$1 ~ /^pgdemote_/ { sum += $2 } END { print sum + 0 }' /proc/vmstat; }
sample() {
    measure
    sum=$(awk -v a="$sum" -v b="$accesses" 'BEGIN { print a + b }') samples=$((samples + 1))
    course="$course $accesses"
}

run_arms() {
    local arm
    need_two_nodes
    fill_fast_node
    for arm in $arms; do run_arm "$arm"; done
}

# Which tiers the kernel sees, and whether its DAMON has goals by node.
tiers_contest_kernel() {
    need_two_nodes
    note "tiers: $(grep -H . /sys/devices/virtual/memory_tiering/*/nodelist | sed 's|.*/\(memory_tier[0-9]*\)/nodelist:|\1: node |' | tr '\n' ' ')"
    [ -e $damon ] || skip "this kernel has no DAMON"
    write $damon nr_kdamonds 1 0/contexts/nr_contexts 1 0/contexts/0/schemes/nr_schemes 1 \
        0/contexts/0/schemes/0/quotas/goals/nr_goals 1
    if [ -e $damon/0/contexts/0/schemes/0/quotas/goals/0/nid ]; then
        note "DAMON has goals by node"
    else
        note "DAMON has no goals by node: its quotas are fixed"
    fi
    write $damon nr_kdamonds 0
}

# The lab's pattern: 97 % of the accesses go to 16 MiB, 3 % to other 16 MiB, and 0.02 % to the remaining 80
# MiB. After the first half, the heat moves to 16 of these. Each arm starts the program again.
tiers_contest_moving() {
    program=moving is_sampled=yes
    need_two_nodes
    sed "s/^40000$/$((seconds * 500))/" /tiers-contest.cfg >/tmp/contest.cfg
    start_on_slow_node is_in_phase start_tier_pattern
    check_touched
    run_arms
}
start_tier_pattern() {
    rm -f /tmp/ready
    thermo-lab workload /tmp/contest.cfg --log-interval 500ms >/tmp/ready 2>/tmp/workload.stderr &
    pid=$!
    kill_at_end "$pid"
}
is_in_phase() { grep -q '"one is hot"' /tmp/ready; }
# Memory that is first touched later would be on the fast node without a move.
check_touched() {
    [ "$(pages_on 1 "$pid")" -ge $((112 << 8)) ] || fail "this machine is too slow: the program did not touch all of its memory in time"
}
restart_pattern() {
    kill -KILL "$pid"
    start_on_slow_node is_in_phase start_tier_pattern
    check_touched
}
# Accesses in 100,000 of each part, in both phases.
measure_pattern() {
    local hot_part=one part weight fast=0 slow=0 sum=0
    ! tail -n 1 /tmp/ready | grep -q '"two is hot"' || hot_part=two
    for part in one two warm gap rest; do
        case $part in
            "$hot_part") weight=96980 ;;
            warm) weight=3000 ;;
            one | two) weight=4 ;;
            *) weight=8 ;;
        esac
        placement --range "$(region $part)"
        sum=$(awk -v sum="$sum" -v weight=$weight -v fast="$on_fast" -v slow="$on_slow" 'BEGIN { print sum + weight * fast / (fast + slow) }')
        [ $weight -lt 1000 ] || fast=$((fast + on_fast)) slow=$((slow + on_slow))
    done
    accesses=$(awk -v sum="$sum" 'BEGIN { printf "%.1f", sum / 1000 }')
    on_fast=$fast on_slow=$slow
    hot=$(share)
}

# redis: 12 MB of records are read, each as often as the others.
tiers_contest_redis() {
    program=redis is_sampled=
    need_two_nodes
    start_filled_redis
    run_arms
}

# MariaDB: a tenth of a table is read, each row as often as the others.
tiers_contest_mariadb() {
    program=mariadb is_sampled=
    need_two_nodes
    start_filled_mariadb
    run_arms
}

reset_load() { [ "$program" != moving ] || restart_pattern; }
measure() {
    case $program in
        moving) measure_pattern ;;
        *)
            placement --contains "$mark"
            hot=$(share) accesses=$hot
            ;;
    esac
}
