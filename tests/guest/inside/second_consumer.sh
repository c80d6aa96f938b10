# Accessed marks that somebody else clears too: in-kernel DAMON on the same process.

damon=/sys/kernel/mm/damon/admin/kdamonds

prepare_kdamond() {
    echo 1 >$damon/nr_kdamonds
    echo 1 >$damon/0/contexts/nr_contexts
    echo vaddr >$damon/0/contexts/0/operations
    echo 1 >$damon/0/contexts/0/targets/nr_targets
    echo "$pid" >$damon/0/contexts/0/targets/0/pid_target
}

start_kdamond() {
    echo on >$damon/0/state && [ "$(cat $damon/0/state)" = on ]
}

stop_kdamond() {
    [ -d $damon/0 ] || return 0
    echo off >$damon/0/state
    echo 0 >$damon/nr_kdamonds
}

# CPU ticks of the thread so far.
kdamond_ticks() { awk '{ print $14 + $15 }' "/proc/$(cat $damon/0/pid)/stat"; }

a_kdamond_that_looks_too_takes_little_away() {
    [ -d $damon ] || skip "this kernel has no DAMON"
    local alone_precision alone_recall
    start_workload hot-cold.cfg
    # shellcheck disable=SC2086,SC2154
    sees_the_hot_part $intervals --pid "$pid"
    alone_precision=$precision alone_recall=$recall
    trap stop_kdamond EXIT
    prepare_kdamond && start_kdamond || fail "in-kernel DAMON cannot be started"
    # shellcheck disable=SC2086
    sees_the_hot_part $intervals --pid "$pid"
    thermo_says doctor | grep '^  kdamond ' | sed "s/^ */# $name: doctor: /"
    thermo_says report info --json /tmp/seen.arrow | grep -q 'of in-kernel DAMON looks, too' || fail "the report does not tell of the kdamond"
    note "alone $alone_precision % and $alone_recall %, beside a kdamond ($(kdamond_ticks) ticks of CPU) $precision % and $recall %"
}

# How much of what is known changes when a kdamond looks, too. Both kinds of kdamond, and both ways of ours; with a
# budget that even an emulated machine sees something for.
second_consumer_is_measured() {
    [ -d $damon ] || skip "this kernel has no DAMON"
    local kind look
    start_workload hot-cold.cfg
    trap stop_kdamond EXIT
    for kind in nobody vaddr paddr; do
        [ $kind = nobody ] || { prepare_kdamond && watch_by $kind && start_kdamond || fail "in-kernel DAMON cannot be started"; }
        for look in sweep sample; do
            is_seen_beside $kind $look
        done
        stop_kdamond
    done
}

# The aim is 5 %. A snapshot is a sample, and the host is shared: it is told, and judged by more.
is_seen_beside() { # WHO LOOK
    local seconds
    for seconds in 30 60; do
        thermo_says record -o /tmp/beside.arrow --tracker pte --look "$2" --cpu 50% --pid "$pid" --duration "${seconds}s" || fail "record ended with $?: $(last_words)"
        judge /tmp/beside.arrow
        note "beside $1, $2: hot bytes wrong by $error % (precision $precision %, recall $recall %)"
        [ "$error" -gt 20 ] || return 0
    done
    fail "beside $1, $2: hot bytes wrong by $error %; at most 20 % are wanted"
}

# All of the machine's memory, for paddr.
watch_by() { # OPERATIONS
    [ "$1" = paddr ] || return 0
    local ram nth=0
    echo paddr >$damon/0/contexts/0/operations
    echo 1 >$damon/0/contexts/0/targets/nr_targets
    grep 'System RAM' /proc/iomem | sed 's/^ *//; s/ :.*//' >/tmp/ram
    echo "$(wc -l </tmp/ram)" >$damon/0/contexts/0/targets/0/regions/nr_regions
    while read -r ram; do
        echo $((0x${ram%-*})) >$damon/0/contexts/0/targets/0/regions/$nth/start
        echo $((0x${ram#*-} + 1)) >$damon/0/contexts/0/targets/0/regions/$nth/end
        nth=$((nth + 1))
    done </tmp/ram
}
