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
    note "alone $alone_precision % and $alone_recall %, beside a kdamond ($(kdamond_ticks) ticks of CPU) $precision % and $recall %"
}
