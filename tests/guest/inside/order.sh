# The effect of monitoring on the kernel's reclaim order: a program with a memory limit alternates between two
# parts of its memory, alternately alone and monitored. Runs on Debian's kernels, with MGLRU or without. The
# numbers are printed and cannot fail the test. workloads/experiments/order.toml measures the same on a real
# machine.

# Sets faults to the number of major faults of one run.
turn() { # alone|monitored NUMBER
    local recorder="" group=/cgroup/order_$1_$2
    mkdir "$group"
    echo 64M >"$group/memory.max"
    # Memory is charged to the group of the process at the first touch.
    echo 0 >"$group/cgroup.procs"
    start_touching turns.cfg
    echo 0 >/cgroup/cgroup.procs
    if [ "$1" = monitored ]; then
        thermo record -o /tmp/turns.arrow --pid "$pid" 2>/tmp/stderr &
        recorder=$!
    fi
    wait "$pid" || fail "the program ended with $?"
    [ -z "$recorder" ] || wait "$recorder" || fail "record ended with $?: $(last_error)"
    faults=$(awk '$1 == "pgmajfault" { print $2 }' "$group/memory.stat")
    rmdir "$group"
}

reclaim_order_is_measured() {
    local nth arm faults all=""
    echo +memory >/cgroup/cgroup.subtree_control || skip "this kernel has no memory controller"
    make_swap
    [ ! -e /sys/kernel/mm/transparent_hugepage/enabled ] || without_huge_pages
    for nth in 1 2 3 4; do
        for arm in alone monitored; do
            turn $arm $nth
            all="$all $arm $faults"
        done
    done
    note "major faults:$all; lru_gen $(cat /sys/kernel/mm/lru_gen/enabled 2>/dev/null)"
}
