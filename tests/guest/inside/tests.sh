# What must hold on every kernel. Run by init, alone on its machine.
. /lib.sh
. /second_consumer.sh
. /kdamond.sh
. /conformance.sh
. /contest.sh
. /damo.sh
. /idle.sh
. /lru_sort.sh
. /order.sh
. /without_privilege.sh

intervals="--sample 50ms --aggr 500ms"

doctor_chooses_pte() {
    thermo_says doctor --json >/out/doctor.json || fail "doctor ended with $?: $(last_words)"
    grep -q '"default_tracker":"pte"' /out/doctor.json || fail "$(thermo_says doctor | grep '  pte ')"
}

has_snapshot() { thermo_says report info --json /tmp/some.arrow >/tmp/info.json && [ "$(number_of snapshots </tmp/info.json)" -gt 0 ]; }

# No more than that: for machines too slow to wait until a picture is right.
record_tells_something() {
    local recorder status=0
    thermo-lab workload /hot.cfg --duration 10m >/dev/null 2>&1 &
    pid=$!
    to_be_stopped "$pid"
    rm -f /tmp/some.arrow
    # shellcheck disable=SC2086 # several words
    thermo record -o /tmp/some.arrow --tracker pte $intervals --pid "$pid" 2>/dev/null &
    recorder=$!
    to_be_stopped "$recorder"
    wait_until "a snapshot is recorded" has_snapshot
    kill -INT "$recorder"
    wait "$recorder" || status=$?
    [ "$status" -eq 130 ] || fail "record ended with $status, not 130"
    grep -q '"tracker":"pte"' /tmp/info.json || fail "not recorded as pte's: $(cat /tmp/info.json)"
}

record_sees_the_hot_part() {
    start_workload hot-cold.cfg
    # shellcheck disable=SC2086 # several words
    sees_the_hot_part --tracker pte $intervals --pid "$pid"
}

record_of_its_own_choice_sees_the_hot_part() {
    start_workload hot-cold.cfg
    sees_the_hot_part --pid "$pid"
}

record_sees_huge_pages() {
    start_workload hot-cold.cfg --huge-pages
    note "AnonHugePages $(huge_kib) KiB"
    [ "$(huge_kib)" -gt 0 ] || fail "there is no huge page to be seen"
    # shellcheck disable=SC2086
    sees_the_hot_part --tracker pte $intervals --pid "$pid"
}

# It knows mappings only. The kernel may have put the one that is hot beside another, which makes them one.
smaps_sees_the_hot_mapping() {
    local truth_as=whole_mappings hot
    start_workload hot.cfg
    hot=$(region hot)
    note "mapped in one, in KiB: $(echo "$((${hot%-*})) $((${hot#*-}))" | whole_mappings | awk '{ print ($2 - $1) / 1024 }') for 8192"
    # shellcheck disable=SC2086
    sees_the_hot_part --tracker smaps $intervals --pid "$pid"
}

cgroup_is_a_target() {
    mkdir -p /cgroup/watched
    start_workload hot-cold.cfg
    echo "$pid" >/cgroup/watched/cgroup.procs
    # shellcheck disable=SC2086
    sees_the_hot_part $intervals --cgroup /cgroup/watched
}

# Every process of the machine, under one budget; but not what is called like ourselves.
machine_is_a_target() {
    local as_program=/tmp/program
    ln -sf "$(command -v thermo-lab)" $as_program
    start_workload hot-cold.cfg
    sees_the_hot_part --system --tracker pte --cpu 20%
    local targets
    targets=$(cut -d, -f2 /tmp/all.csv | sort -un | wc -l)
    note "$((targets - 1)) processes are told of"
    [ "$targets" -gt 2 ] || fail "no other process is told of"
}

record_applies_schemes() {
    start_workload hot-cold.cfg
    echo 'min max min max min max stat' >/tmp/stat.damos
    # shellcheck disable=SC2086
    thermo_says record -o /tmp/schemes.arrow $intervals --pid "$pid" --schemes /tmp/stat.damos --duration 5s ||
        fail "record ended with $?: $(last_words)"
    thermo_says report schemes --json /tmp/schemes.arrow >/tmp/schemes.json || fail "report ended with $?: $(last_words)"
    [ "$(number_of sz_tried </tmp/schemes.json)" -ge 134217728 ] || fail "not all was tried: $(cat /tmp/schemes.json)"
}

# Applies one line for long enough that something has changed, and says how many bytes; sets changed.
apply_line() { # LINE
    local seconds
    echo "$1" >/tmp/line.damos
    for seconds in 5 10 20 40; do
        # shellcheck disable=SC2086
        thermo_says schemes apply $intervals --pid "$pid" --duration "${seconds}s" --json /tmp/line.damos >/tmp/applied.json ||
            fail "schemes apply ended with $?: $(last_words)"
        changed=$(number_of sz_applied </tmp/applied.json)
        [ "${changed:-0}" -eq 0 ] || break
    done
    note "$(number_of sz_tried </tmp/applied.json) bytes tried, $changed applied"
    [ "${changed:-0}" -gt 0 ] || fail "nothing was done: $(cat /tmp/applied.json)"
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
    [ "$after" -gt "$before" ] || fail "AnonHugePages was $before KiB and is $after KiB"
}

make_swap() {
    [ -e /sys/block/zram0 ] || skip "there is no zram here"
    grep -q zram0 /proc/swaps && return
    echo 512M >/sys/block/zram0/disksize && mkswap /dev/zram0 >/dev/null && swapon /dev/zram0 || fail "zram cannot be swapped to"
}

swapped_at_least() { # KIB
    [ "$(status_kib VmSwap)" -ge "$1" ]
}

# Runs a command in the background until half of the cold memory is swapped, ends it as Ctrl-C does, and looks
# whether the hot one stayed. How much of the cold memory was touched in its time depends on the host's load.
pages_out_the_cold_part() { # COMMAND...
    local reclaimer faults wanted swapped=0 status=0
    wanted=$((($(status_kib RssAnon) - 8192) / 2))
    [ "$wanted" -gt 0 ] || fail "nothing cold was touched"
    faults=$(major_faults)
    "$@" >/tmp/reclaimer.json 2>/tmp/stderr &
    reclaimer=$!
    to_be_stopped "$reclaimer"
    comes_true swapped_at_least "$wanted" && swapped=$(status_kib VmSwap)
    kill -INT "$reclaimer"
    wait "$reclaimer" || status=$?
    faults=$(($(major_faults) - faults))
    note "VmSwap $(status_kib VmSwap) KiB ($wanted wanted), RssAnon $(status_kib RssAnon) KiB, $faults major faults, ended with $status"
    [ "$status" -eq 130 ] || fail "it ended with $status, not 130: $(last_words)"
    [ "$swapped" -gt 0 ] || fail "$wanted KiB are not swapped out within two minutes: $(cat /tmp/reclaimer.json) $(last_words)"
    # The hot part has 2048 pages; one that was taken comes back at once, by a major fault.
    [ "$faults" -lt 1024 ] || fail "$faults major faults: hot memory was paged out, too"
}

pageout_swaps_the_cold_part() {
    make_swap
    start_workload hot-cold.cfg
    echo '4K max 0 0 2s max pageout' >/tmp/pageout.damos
    # shellcheck disable=SC2086
    pages_out_the_cold_part thermo schemes apply $intervals --pid "$pid" --json /tmp/pageout.damos
}

reclaim_swaps_the_cold_part() {
    make_swap
    start_workload hot-cold.cfg
    # shellcheck disable=SC2086
    pages_out_the_cold_part thermo reclaim $intervals --pid "$pid" --min-age 2s --quota-ms 0 --quota-sz 0 \
        --wmarks-high 1000 --wmarks-mid 1000 --wmarks-low 0
}

# The head and one batch at least: the file has grown after it was begun.
has_grown() { [ "$(stat -c %s /tmp/killed.arrow)" -gt "$size" ]; }

killed_record_is_readable() {
    local recorder snapshots size=0
    start_workload hot-cold.cfg
    rm -f /tmp/killed.arrow
    # shellcheck disable=SC2086
    thermo record -o /tmp/killed.arrow $intervals --pid "$pid" 2>/dev/null &
    recorder=$!
    to_be_stopped "$recorder"
    wait_until "the file is begun" test -s /tmp/killed.arrow
    size=$(stat -c %s /tmp/killed.arrow)
    wait_until "the file grows" has_grown
    kill -KILL "$recorder"
    wait "$recorder"
    thermo_says report info --json /tmp/killed.arrow >/tmp/info.json || fail "report ended with $?: $(last_words)"
    snapshots=$(number_of snapshots </tmp/info.json)
    [ "${snapshots:-0}" -gt 0 ] || fail "no snapshot is left: $(cat /tmp/info.json)"
}

gone() { ! kill -0 "$1" 2>/dev/null; }

record_ends_with_its_target() {
    local recorder
    start_workload hot-cold.cfg
    rm -f /tmp/ended.arrow
    # shellcheck disable=SC2086
    thermo record -o /tmp/ended.arrow $intervals --pid "$pid" 2>/tmp/stderr &
    recorder=$!
    to_be_stopped "$recorder"
    wait_until "the file is begun" test -s /tmp/ended.arrow
    kill -KILL "$pid"
    wait_until "record ends" gone "$recorder"
    wait "$recorder" || fail "record ended with $?: $(last_words)"
}

unknown_tracker_is_refused() {
    start_workload hot-cold.cfg
    thermo_says record -o /tmp/refused.arrow --tracker idle --pid "$pid" --duration 1s && fail "it was taken"
    local status=$?
    [ "$status" -eq 2 ] || fail "it ended with $status, not 2: $(last_words)"
    last_words | grep -q idle || fail "the reason is another: $(last_words)"
    [ ! -e /tmp/refused.arrow ] || fail "a file is left"
    note "$(last_words)"
}

# Doctor says so, what is named is refused, and what is chosen tells that it is a substitute.
a_kernel_without_types_is_told() {
    local status=0
    start_workload hot-cold.cfg
    mount -t tmpfs tmpfs /sys/kernel/btf || fail "the kernel's types cannot be hidden"
    trap 'umount /sys/kernel/btf' EXIT
    thermo_says doctor | grep -q '^  pte .* no .*/sys/kernel/btf/vmlinux' || fail "doctor does not tell: $(thermo_says doctor | grep '^  pte ')"
    thermo_says record -o /tmp/refused.arrow --tracker pte --pid "$pid" --duration 1s || status=$?
    [ "$status" -eq 2 ] || fail "it ended with $status, not 2: $(last_words)"
    last_words | grep -q -- '--tracker auto' || fail "the way out is not named: $(last_words)"
    [ ! -e /tmp/refused.arrow ] || fail "a file is left"
    thermo_says record -o /tmp/chosen.arrow --pid "$pid" --duration 1s || fail "record ended with $?: $(last_words)"
    grep -q 'tracker .*: .* Not pte: .*/sys/kernel/btf/vmlinux' /tmp/stderr || fail "a substitute is taken silently: $(last_words)"
}

# The kernel hands words it does not know to init, as its environment. Lockdown cannot be taken back: it comes last.
every_test="doctor_chooses_pte record_sees_the_hot_part record_of_its_own_choice_sees_the_hot_part
    record_sees_huge_pages smaps_sees_the_hot_mapping cgroup_is_a_target machine_is_a_target record_applies_schemes cold_is_applied
    lru_prio_is_applied collapse_makes_huge_pages pageout_swaps_the_cold_part reclaim_swaps_the_cold_part
    sorting_decides_what_is_reclaimed sorting_decides_against_age moving_up_spares_among_equals killed_record_is_readable record_ends_with_its_target unknown_tracker_is_refused
    a_kernel_without_types_is_told
    every_tracker_finds_hot_and_cold every_tracker_notices_an_exit no_tracker_splits_huge_pages
    kdamond_tracker_tells_several_targets_apart kdamond_tracker_refuses_what_is_not_ours
    kdamond_tracker_translates_schemes kdamond_tracker_pages_out kdamond_tracker_cleans_up
    a_kdamond_that_looks_too_takes_little_away second_consumer_is_measured ageing_by_mglru_is_measured record_without_privilege lockdown_is_told"

# Gives away what is new in /out, after every test: a guest may be ended before it is through.
hand_out() {
    local new
    new=$(cd /out && find . -type f -newer /tmp/handed_out)
    touch /tmp/handed_out
    # shellcheck disable=SC2086 # names without blanks
    [ -z "$new" ] || tar -cf /dev/ttyS1 -C /out $new
}
touch -t 197001010000 /tmp/handed_out

echo "# guest: $(uname -sr)"
# shellcheck disable=SC2154 # from the kernel's command line
for test in $(echo "${tests:-$every_test}" | tr ',' ' '); do
    run_test "$test"
    hand_out
done
echo "the guest is done"
