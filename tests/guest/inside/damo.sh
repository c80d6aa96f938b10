# Unmodified damo on the control files of the guest's DAMON and on those of `thermo fs`, on the same kernel:
# the same steps and checks, a comparison of the trees, and times. tests/guest/damo.sh puts the needed files
# into the guest.

damo_out=/out/damo
# Factor for intervals and deadlines.
# shellcheck disable=SC2154 # from the kernel's command line
damo_pace=${damo_pace:-1}
damo_turns=${damo_turns:-5}

need_damo() {
    [ -x /bin/damo ] || skip "damo is not in this initramfs: use tests/guest/damo.sh"
    need_damon
    mkdir -p $damo_out
    # damo reads the list of kernel events.
    grep -q " tracefs " /proc/mounts || mount -t tracefs tracefs /sys/kernel/tracing
}

# Limits the workload to a quarter of a CPU: enough to touch all hot memory in each sample, and damo gets the
# rest.
prepare_target() {
    echo +cpu >/cgroup/cgroup.subtree_control
    mkdir -p /cgroup/target
    echo 1000 4000 >/cgroup/target/cpu.max || fail "this kernel cannot limit CPU time"
    printf '#!/bin/sh\necho $$ >/cgroup/target/cgroup.procs\nexec /bin/thermo-lab "$@"\n' >/tmp/lab-in-target
    chmod +x /tmp/lab-in-target
}

# Runs check.py and prints a line at the end of each step.
damo_checks() { # NAME COMMAND... OPTION...
    local name=$1 log=$damo_out/$1.txt
    need_damo
    make_swap
    prepare_target
    mkdir -p "/tmp/damo-$name"
    shift
    # shellcheck disable=SC2046,SC2154 # several words; from the kernel's command line
    { "$@" --pace "$damo_pace" /bin/damo /tmp/lab-in-target "/tmp/damo-$name" $(echo "${damo_steps:-}" | tr , ' ') 2>&1 ||
        echo "ended with $?"; } | tee "$log" | sed "s/^/# $name: /"
    if grep -qE '^(FAIL|ended with)' "$log"; then fail "$(grep -E '^(FAIL|ended with)' "$log" | head -n 1)"; fi
    grep -qE '^(ok|differs) ' "$log" || fail "no step passed"
}

damo_works_on_kernel_files() { damo_checks kernel python3 /damo/check.py --kernel; }
damo_works_on_thermo_files() { damo_checks ours thermo fs -- python3 /damo/check.py; }

damo_trees_are_compared() {
    need_damo
    python3 /damo/tree.py list >$damo_out/tree-kernel.json 2>/tmp/stderr || fail "tree.py failed on the kernel's tree: $(last_error)"
    thermo fs -- python3 /damo/tree.py list >$damo_out/tree-ours.json 2>/tmp/stderr || fail "tree.py failed on the tree of thermo fs: $(last_error)"
    python3 /damo/tree.py compare "Linux $(uname -r)" $damo_out/tree-kernel.json "thermo fs" $damo_out/tree-ours.json >$damo_out/trees.md 2>/tmp/stderr ||
        fail "the trees cannot be compared: $(last_error)"
    sed 's/^/# /' $damo_out/trees.md
}

# Measures each time once, and prints progress.
damo_turn() { # NAME COMMAND...
    local times=$damo_out/times-$1 before
    before=$(cat "$times" 2>/dev/null | wc -l)
    echo "# $1, turn $turn of $damo_turns"
    shift
    "$@" /damo/damonfs.py /bin/damo --turn 2>&1 >>"$times" | sed 's/^/# /'
    [ "$(wc -l <"$times")" -gt "$before" ] || fail "a measurement did not finish"
}

# Alternates the two, so that the load of the host affects both.
damo_is_timed() {
    need_damo
    local turn
    for turn in $(seq "$damo_turns"); do
        damo_turn kernel python3
        damo_turn ours thermo fs -- python3
    done
    python3 /damo/damonfs.py --medians "Linux $(uname -r)" $damo_out/times-kernel "thermo fs" $damo_out/times-ours >$damo_out/times.md ||
        fail "medians cannot be computed"
    sed 's/^/# /' $damo_out/times.md
}
