# Tests for every kernel. init runs this script; nothing else runs in the guest.
. /lib.sh
. /interference.sh
. /kdamond.sh
. /conformance.sh
. /contest.sh
. /damo.sh
. /idle.sh
. /lru_sort.sh
. /order.sh
. /tiers.sh
. /tiers_contest.sh
. /tiers_mariadb.sh
. /without_privilege.sh

intervals="--sample 50ms --aggr 500ms"

doctor_chooses_pte() {
    run_thermo doctor --json >/out/doctor.json || fail "doctor ended with $?: $(last_error)"
    grep -q '"default_tracker":"pte"' /out/doctor.json || fail "$(run_thermo doctor | grep '  pte ')"
}

# True once the recording, which is still being written, contains a snapshot: its first batch may have none.
has_snapshot() { # FILE
    run_thermo report info --json "$1" >/tmp/info.json && [ "$(number_of snapshots </tmp/info.json)" -gt 0 ] 2>/dev/null
}

# Does not check accuracy: for machines that are too slow for that.
record_writes_a_snapshot() {
    local recorder status=0
    thermo-lab workload /hot.cfg --duration 10m >/dev/null 2>&1 &
    pid=$!
    kill_at_end "$pid"
    rm -f /tmp/some.arrow
    # shellcheck disable=SC2086 # several words
    thermo record -o /tmp/some.arrow --tracker pte $intervals --pid "$pid" 2>/dev/null &
    recorder=$!
    kill_at_end "$recorder"
    wait_until "a snapshot is recorded" has_snapshot /tmp/some.arrow
    kill -INT "$recorder"
    wait "$recorder" || status=$?
    [ "$status" -eq 130 ] || fail "record ended with $status, not 130"
    grep -q '"tracker":"pte"' /tmp/info.json || fail "the recording does not name the tracker pte: $(cat /tmp/info.json)"
}

record_finds_hot_memory() {
    start_workload hot-cold.cfg
    # shellcheck disable=SC2086 # several words
    find_hot_memory --tracker pte $intervals --pid "$pid"
}

default_record_finds_hot_memory() {
    start_workload hot-cold.cfg
    find_hot_memory --pid "$pid"
}

record_finds_hot_huge_pages() {
    start_workload hot-cold.cfg --huge-pages
    note "AnonHugePages $(huge_kib) KiB"
    [ "$(huge_kib)" -gt 0 ] || fail "the workload has no huge pages"
    # shellcheck disable=SC2086
    find_hot_memory --tracker pte $intervals --pid "$pid"
}

# smaps distinguishes whole mappings only. The kernel may have merged the hot mapping with an adjacent one.
smaps_finds_hot_mapping() {
    local truth_filter=whole_mappings hot
    start_workload hot.cfg
    hot=$(region hot)
    note "size of the mapping in KiB: $(echo "$((${hot%-*})) $((${hot#*-}))" | whole_mappings | awk '{ print ($2 - $1) / 1024 }') for 8192"
    # shellcheck disable=SC2086
    find_hot_memory --tracker smaps $intervals --pid "$pid"
}

record_monitors_cgroup() {
    mkdir -p /cgroup/monitored
    start_workload hot-cold.cfg
    echo "$pid" >/cgroup/monitored/cgroup.procs
    # shellcheck disable=SC2086
    find_hot_memory $intervals --cgroup /cgroup/monitored
}

# --system monitors every process except those with the names of thermo's commands, so the workload gets
# another name.
record_monitors_system() {
    local program_name=/tmp/program
    ln -sf "$(command -v thermo-lab)" $program_name
    start_workload hot-cold.cfg
    find_hot_memory --system --tracker pte --cpu 20%
    local targets
    targets=$(cut -d, -f2 /tmp/all.csv | sort -un | wc -l)
    note "$((targets - 1)) processes are in the snapshot"
    [ "$targets" -gt 2 ] || fail "no other process is in the snapshot"
    rows_sum_up_to_memory
}

# Each page of the machine is in one row of the table of --system, those of monitored programs in the first.
rows_sum_up_to_memory() {
    local table total sum monitored
    run_thermo report summary --json /tmp/seen.arrow >/tmp/summary.json || fail "report ended with $?: $(last_error)"
    # "totals":{"rows":[{"bytes":N,"name":"..."},...],"scope":"machine",...
    table=$(tr -d ' \n' </tmp/summary.json | sed -n 's/.*"totals":{"rows":\[\([^]]*\)\],"scope":"machine".*/\1/p')
    sum=$(echo "$table" | grep -o '"bytes":[0-9]*' | awk -F: '{ sum += $2 } END { print int(sum / 1024) }')
    total=$(awk '$1 == "MemTotal:" { print $2 }' /proc/meminfo)
    note "rows: $table; their sum is $sum of $total KiB"
    [ $((sum * 50)) -ge $((total * 49)) ] && [ $((sum * 50)) -le $((total * 51)) ] ||
        fail "the rows of the machine's memory sum up to $sum KiB, MemTotal is $total KiB"
    monitored=$(echo "$table" | grep -o '"bytes":[0-9]*,"name":"mapped,monitored"' | sed 's/[^0-9]//g')
    [ "${monitored:-0}" -ge 8388608 ] ||
        fail "${monitored:-0} bytes are mapped and monitored, the hot part of the program alone is 8 MiB"
}

record_applies_schemes() {
    start_workload hot-cold.cfg
    echo 'min max min max min max stat' >/tmp/stat.damos
    # shellcheck disable=SC2086
    run_thermo record -o /tmp/schemes.arrow $intervals --pid "$pid" --schemes /tmp/stat.damos --duration 5s ||
        fail "record ended with $?: $(last_error)"
    run_thermo report schemes --json /tmp/schemes.arrow >/tmp/schemes.json || fail "report ended with $?: $(last_error)"
    [ "$(number_of sz_tried </tmp/schemes.json)" -ge 134217728 ] || fail "less than 128 MiB were tried: $(cat /tmp/schemes.json)"
}

# Applies a scheme line for longer each time until it has changed something. Sets changed to the applied
# bytes.
apply_line() { # LINE
    local seconds
    echo "$1" >/tmp/line.damos
    for seconds in 5 10 20 40; do
        # shellcheck disable=SC2086
        run_thermo schemes apply $intervals --pid "$pid" --duration "${seconds}s" --json /tmp/line.damos >/tmp/applied.json ||
            fail "schemes apply ended with $?: $(last_error)"
        changed=$(number_of sz_applied </tmp/applied.json)
        [ "${changed:-0}" -eq 0 ] || break
    done
    note "$(number_of sz_tried </tmp/applied.json) bytes tried, $changed applied"
    [ "${changed:-0}" -gt 0 ] || fail "nothing was applied: $(cat /tmp/applied.json)"
}

cold_is_applied() {
    start_workload hot-cold.cfg
    apply_line '4K max 0 0 1s max cold'
}

lru_prio_is_applied() {
    start_workload hot-cold.cfg
    apply_line '4K max 10% max min max lru_prio'
}

collapse_makes_huge_pages() {
    [ -e /sys/kernel/mm/transparent_hugepage/enabled ] || skip "this kernel has no transparent huge pages"
    local before after
    without_huge_pages
    start_workload hot-cold.cfg
    before=$(huge_kib)
    apply_line '2M max min max min max collapse'
    after=$(huge_kib)
    [ "$after" -gt "$before" ] || fail "AnonHugePages did not grow: $before KiB before, $after KiB after"
}

make_swap() {
    [ -e /sys/block/zram0 ] || skip "this kernel has no zram"
    grep -q zram0 /proc/swaps && return
    echo 512M >/sys/block/zram0/disksize && mkswap /dev/zram0 >/dev/null && swapon /dev/zram0 || fail "zram cannot be used as swap"
}

swapped_at_least() { # KIB
    [ "$(status_kib VmSwap)" -ge "$1" ]
}

# Runs a command in the background until half of the cold memory is in swap, ends it with SIGINT, and checks
# by major faults that hot memory stayed resident. The size of the cold memory depends on the host's load.
check_cold_memory_is_swapped() { # COMMAND...
    local reclaimer faults wanted swapped=0 status=0
    wanted=$((($(status_kib RssAnon) - 8192) / 2))
    [ "$wanted" -gt 0 ] || fail "no cold memory is resident"
    faults=$(major_faults)
    "$@" >/tmp/reclaimer.json 2>/tmp/stderr &
    reclaimer=$!
    kill_at_end "$reclaimer"
    poll_until swapped_at_least "$wanted" && swapped=$(status_kib VmSwap)
    kill -INT "$reclaimer"
    wait "$reclaimer" || status=$?
    faults=$(($(major_faults) - faults))
    note "VmSwap $(status_kib VmSwap) KiB ($wanted required), RssAnon $(status_kib RssAnon) KiB, $faults major faults, ended with $status"
    [ "$status" -eq 130 ] || fail "the command ended with $status, not 130: $(last_error)"
    [ "$swapped" -gt 0 ] || fail "less than $wanted KiB were swapped out within two minutes: $(cat /tmp/reclaimer.json) $(last_error)"
    # The hot part has 2048 pages. Each hot page that is paged out refaults at once with a major fault.
    [ "$faults" -lt 1024 ] || fail "$faults major faults: hot memory was paged out too"
}

pageout_swaps_cold_memory() {
    make_swap
    start_workload hot-cold.cfg
    echo '4K max 0 0 2s max pageout' >/tmp/pageout.damos
    # shellcheck disable=SC2086
    check_cold_memory_is_swapped thermo schemes apply $intervals --pid "$pid" --json /tmp/pageout.damos
}

reclaim_swaps_cold_memory() {
    make_swap
    start_workload hot-cold.cfg
    # shellcheck disable=SC2086
    check_cold_memory_is_swapped thermo reclaim $intervals --pid "$pid" --min-age 2s --quota-ms 0 --quota-sz 0 \
        --wmarks-high 1000 --wmarks-mid 1000 --wmarks-low 0
}

killed_record_is_readable() {
    local recorder snapshots
    start_workload hot-cold.cfg
    rm -f /tmp/killed.arrow
    # shellcheck disable=SC2086
    thermo record -o /tmp/killed.arrow $intervals --pid "$pid" 2>/dev/null &
    recorder=$!
    kill_at_end "$recorder"
    wait_until "the recording has a snapshot" has_snapshot /tmp/killed.arrow
    kill -KILL "$recorder"
    wait "$recorder"
    # A truncated recording gives a report and exit code 1.
    local code=0
    run_thermo report info --json /tmp/killed.arrow >/tmp/info.json || code=$?
    [ "$code" = 1 ] || fail "report ended with $code: $(last_error)"
    snapshots=$(number_of snapshots </tmp/info.json)
    [ "${snapshots:-0}" -gt 0 ] || fail "the recording has no snapshot: $(cat /tmp/info.json)"
}

has_ended() { ! kill -0 "$1" 2>/dev/null; }

record_ends_with_its_target() {
    local recorder
    start_workload hot-cold.cfg
    rm -f /tmp/ended.arrow
    # shellcheck disable=SC2086
    thermo record -o /tmp/ended.arrow $intervals --pid "$pid" 2>/tmp/stderr &
    recorder=$!
    kill_at_end "$recorder"
    wait_until "the recording exists" test -s /tmp/ended.arrow
    kill -KILL "$pid"
    wait_until "record ends" has_ended "$recorder"
    wait "$recorder" || fail "record ended with $?: $(last_error)"
}

unavailable_tracker_is_rejected() {
    start_workload hot-cold.cfg
    run_thermo record -o /tmp/refused.arrow --tracker idle --pid "$pid" --duration 1s && fail "record --tracker idle succeeded"
    local status=$?
    [ "$status" -eq 2 ] || fail "the command ended with $status, not 2: $(last_error)"
    last_error | grep -q idle || fail "the error does not name the tracker: $(last_error)"
    [ ! -e /tmp/refused.arrow ] || fail "a recording was left behind"
    note "$(last_error)"
}

# Without BTF types: doctor reports it, --tracker pte is an error, and the default tracker is used with a
# message.
missing_btf_is_reported() {
    local status=0
    start_workload hot-cold.cfg
    mount -t tmpfs tmpfs /sys/kernel/btf || fail "cannot mount a tmpfs over /sys/kernel/btf"
    trap 'umount /sys/kernel/btf' EXIT
    run_thermo doctor | grep -q '^  pte .* no .*/sys/kernel/btf/vmlinux' || fail "doctor does not report missing BTF: $(run_thermo doctor | grep '^  pte ')"
    run_thermo record -o /tmp/refused.arrow --tracker pte --pid "$pid" --duration 1s || status=$?
    [ "$status" -eq 2 ] || fail "the command ended with $status, not 2: $(last_error)"
    last_error | grep -q -- '--tracker auto' || fail "the error does not name --tracker auto: $(last_error)"
    [ ! -e /tmp/refused.arrow ] || fail "a recording was left behind"
    run_thermo record -o /tmp/chosen.arrow --pid "$pid" --duration 1s || fail "record ended with $?: $(last_error)"
    grep -q 'tracker .*: .* Not pte: .*/sys/kernel/btf/vmlinux' /tmp/stderr || fail "no message about the substitute for pte: $(last_error)"
}

# The kernel passes unknown words of its command line to init, as environment variables. Lockdown cannot be
# undone, so its test is the last one.
default_tests="doctor_chooses_pte record_finds_hot_memory default_record_finds_hot_memory
    record_finds_hot_huge_pages smaps_finds_hot_mapping record_monitors_cgroup record_monitors_system record_applies_schemes cold_is_applied
    lru_prio_is_applied collapse_makes_huge_pages pageout_swaps_cold_memory reclaim_swaps_cold_memory
    lru_sort_decides_reclaim_order lru_sort_overrides_age lru_prio_protects_among_equal_ages killed_record_is_readable record_ends_with_its_target unavailable_tracker_is_rejected
    missing_btf_is_reported
    every_tracker_finds_hot_and_cold every_tracker_ends_with_its_target no_tracker_splits_huge_pages
    kdamond_tracker_separates_targets kdamond_tracker_rejects_foreign_kdamond
    kdamond_tracker_translates_schemes kdamond_tracker_pages_out kdamond_tracker_cleans_up
    claims_of_killed_thermo_are_listed_and_undone
    pte_is_accurate_with_kdamond kdamond_adds_little_error mglru_ageing_is_measured record_without_privilege direct_map_needs_few_capabilities lockdown_is_reported"

# Transfers new files of /out to the host. Called after every test, because a guest may be killed before its
# end.
send_results() {
    local new
    new=$(cd /out && find . -type f -newer /tmp/sent_results)
    touch /tmp/sent_results
    # shellcheck disable=SC2086 # names without blanks
    [ -z "$new" ] || tar -cf /dev/ttyS1 -C /out $new
}
touch -t 197001010000 /tmp/sent_results

echo "# guest: $(uname -sr)"
# shellcheck disable=SC2154 # from the kernel's command line
for test in $(echo "${tests:-$default_tests}" | tr ',' ' '); do
    run_test "$test"
    send_results
done
echo "the guest has finished"
