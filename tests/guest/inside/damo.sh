# damo, unmodified, over the control files of the guest's own DAMON and over ours, on the same kernel: the same steps with
# the same checks, what the two trees are like, and what takes how long. tests/guest/damo.sh takes along what it needs.

damo_out=/out/damo
# So many times as long as usual are intervals and deadlines.
# shellcheck disable=SC2154 # from the kernel's command line
damo_pace=${damo_pace:-1}
damo_turns=${damo_turns:-5}

need_damo() {
    [ -x /bin/damo ] || skip "damo was not taken along: use tests/guest/damo.sh"
    need_damon
    mkdir -p $damo_out
    # damo asks for the kernel's events.
    grep -q " tracefs " /proc/mounts || mount -t tracefs tracefs /sys/kernel/tracing
}

# The workload is let work a quarter of the time: it touches all that is hot in each sample, and leaves the emulated
# machine to damo.
prepare_target() {
    echo +cpu >/cgroup/cgroup.subtree_control
    mkdir -p /cgroup/target
    echo 1000 4000 >/cgroup/target/cpu.max || fail "there is no limit of CPU time here"
    printf '#!/bin/sh\necho $$ >/cgroup/target/cgroup.procs\nexec /bin/thermo-lab "$@"\n' >/tmp/lab-in-target
    chmod +x /tmp/lab-in-target
}

# Each step is a line of its own, told as it ends.
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
    grep -qE '^(ok|differs) ' "$log" || fail "no step was passed"
}

damo_over_the_kernels() { damo_checks kernel python3 /damo/check.py --kernel; }
damo_over_ours() { damo_checks ours thermo fs -- python3 /damo/check.py; }

damo_trees_compared() {
    need_damo
    python3 /damo/tree.py list >$damo_out/tree-kernel.json 2>/tmp/stderr || fail "the kernel's tree: $(last_words)"
    thermo fs -- python3 /damo/tree.py list >$damo_out/tree-ours.json 2>/tmp/stderr || fail "our tree: $(last_words)"
    python3 /damo/tree.py compare "Linux $(uname -r)" $damo_out/tree-kernel.json "thermo fs" $damo_out/tree-ours.json >$damo_out/trees.md 2>/tmp/stderr ||
        fail "they cannot be compared: $(last_words)"
    sed 's/^/# /' $damo_out/trees.md
}

# One turn of what takes how long, told as it goes on.
damo_turn() { # NAME COMMAND...
    local times=$damo_out/times-$1 before
    before=$(cat "$times" 2>/dev/null | wc -l)
    echo "# $1, turn $turn of $damo_turns"
    shift
    "$@" /damo/damonfs.py /bin/damo --turn 2>&1 >>"$times" | sed 's/^/# /'
    [ "$(wc -l <"$times")" -gt "$before" ] || fail "a turn was not through"
}

# In turns, so that what the host does meanwhile falls on both.
damo_timed() {
    need_damo
    local turn
    for turn in $(seq "$damo_turns"); do
        damo_turn kernel python3
        damo_turn ours thermo fs -- python3
    done
    python3 /damo/damonfs.py --medians "Linux $(uname -r)" $damo_out/times-kernel "thermo fs" $damo_out/times-ours >$damo_out/times.md ||
        fail "there are no medians"
    sed 's/^/# /' $damo_out/times.md
}
