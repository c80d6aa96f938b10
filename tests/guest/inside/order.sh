# What looking does to the order in which the kernel reclaims: a program that turns from one part of its memory to another
# within a limit, alone and watched by turns. The numbers are told, not judged (workloads/experiments/order.toml has more of
# that on a real machine); here it is Debian's kernels, whose lists may be generations.

# Sets faults: pages that had to be read again in one run.
turn() { # alone|watched NUMBER
    local recorder="" group=/cgroup/order_$1_$2
    mkdir "$group"
    echo 64M >"$group/memory.max"
    # Memory is charged to where its process is when it is touched.
    echo 0 >"$group/cgroup.procs"
    start_touching turns.cfg
    echo 0 >/cgroup/cgroup.procs
    if [ "$1" = watched ]; then
        thermo record -o /tmp/turns.arrow --pid "$pid" 2>/tmp/stderr &
        recorder=$!
    fi
    wait "$pid" || fail "the program ended with $?"
    [ -z "$recorder" ] || wait "$recorder" || fail "record ended with $?: $(last_words)"
    faults=$(awk '$1 == "pgmajfault" { print $2 }' "$group/memory.stat")
    rmdir "$group"
}

order_of_turns() {
    local nth way faults all=""
    echo +memory >/cgroup/cgroup.subtree_control || skip "this kernel has no memory controller"
    make_swap
    [ ! -e /sys/kernel/mm/transparent_hugepage/enabled ] || without_huge_pages
    for nth in 1 2 3 4; do
        for way in alone watched; do
            turn $way $nth
            all="$all $way $faults"
        done
    done
    note "major faults:$all; lru_gen $(cat /sys/kernel/mm/lru_gen/enabled 2>/dev/null)"
}
