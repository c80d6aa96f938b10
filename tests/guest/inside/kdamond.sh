# Tracker kdamond: a context handed to the guest's own DAMON, and given back.

need_damon() { [ -d $damon ] || skip "this kernel has no DAMON"; }

tree_is_free() { [ "$(cat $damon/nr_kdamonds)" = 0 ]; }

kdamond_tracker_tells_several_targets_apart() {
    need_damon
    local first
    mkdir -p /cgroup/watched
    start_workload hot-cold.cfg
    first=$pid
    start_workload hot-cold.cfg
    echo "$first" >/cgroup/watched/cgroup.procs
    echo "$pid" >/cgroup/watched/cgroup.procs
    thermo_says record -o /tmp/two.arrow --tracker kdamond --cgroup /cgroup/watched --duration 5s || fail "record ended with $?: $(last_words)"
    thermo_says report regions --last --csv /tmp/two.arrow | cut -d, -f2 | sort -u >/tmp/pids
    grep -qx "$first" /tmp/pids && grep -qx "$pid" /tmp/pids || fail "targets seen: $(tr '\n' ' ' </tmp/pids)"
    thermo_says report info --json /tmp/two.arrow | grep -q '"tracker":"kdamond"' || fail "not recorded as kdamond's"
    tree_is_free || fail "a kdamond is left set up"
}

kdamond_tracker_refuses_what_is_not_ours() {
    need_damon
    local status=0
    start_workload hot-cold.cfg
    trap stop_kdamond EXIT
    prepare_kdamond && start_kdamond || fail "in-kernel DAMON cannot be started"
    rm -f /tmp/refused.arrow
    thermo_says record -o /tmp/refused.arrow --tracker kdamond --pid "$pid" --duration 1s || status=$?
    [ "$status" -eq 2 ] || fail "it ended with $status, not 2: $(last_words)"
    [ ! -e /tmp/refused.arrow ] || fail "a file is left"
    note "$(last_words)"
    [ "$(cat $damon/0/state)" = on ] || fail "the kdamond of somebody else was ended"
    echo off >$damon/0/state
    status=0
    thermo_says record -o /tmp/refused.arrow --tracker kdamond --pid "$pid" --duration 1s || status=$?
    [ "$status" -eq 2 ] && [ "$(cat $damon/nr_kdamonds)" = 1 ] || fail "one that is set up and off was taken: $status"
    note "$(last_words)"
}

# What the kernel cannot do for address spaces, and what it can and we cannot.
kdamond_tracker_translates_schemes() {
    need_damon
    local status=0
    start_workload hot-cold.cfg
    echo 'min max min max min max lru_prio' >/tmp/line.damos
    thermo_says schemes apply --tracker kdamond --pid "$pid" --duration 1s /tmp/line.damos || status=$?
    [ "$status" -eq 2 ] || fail "lru_prio ended with $status, not 2: $(last_words)"
    note "$(last_words)"
    status=0
    thermo_says record -o /tmp/refused.arrow --tracker kdamond --cpu 1% --pid "$pid" --duration 1s || status=$?
    [ "$status" -eq 2 ] || fail "--cpu ended with $status, not 2: $(last_words)"
    note "$(last_words)"
    echo '4K max min max min max nohugepage' >/tmp/line.damos
    thermo_says schemes apply --tracker kdamond --pid "$pid" --duration 4s --json /tmp/line.damos >/tmp/applied.json ||
        fail "schemes apply ended with $?: $(last_words)"
    changed=$(number_of sz_applied </tmp/applied.json)
    [ "${changed:-0}" -gt 0 ] || fail "nohugepage was not applied: $(cat /tmp/applied.json)"
    note "nohugepage applied to $changed bytes"
    tree_is_free || fail "a kdamond is left set up"
}

kdamond_tracker_pages_out() {
    need_damon
    make_swap
    start_workload hot-cold.cfg
    echo '4K max 0 0 2s max pageout' >/tmp/pageout.damos
    pages_out_the_cold_part thermo schemes apply --tracker kdamond --pid "$pid" --json /tmp/pageout.damos
    tree_is_free || fail "a kdamond is left set up"
}

kdamond_runs() { [ "$(cat $damon/0/state 2>/dev/null)" = on ]; }

kdamond_tracker_cleans_up() {
    need_damon
    local recorder signal
    start_workload hot-cold.cfg
    for signal in INT TERM KILL; do
        thermo record -o /tmp/ended.arrow --tracker kdamond --pid "$pid" 2>/tmp/stderr &
        recorder=$!
        to_be_stopped "$recorder"
        wait_until "a kdamond runs" kdamond_runs
        kill -$signal "$recorder"
        wait_until "record ends" gone "$recorder"
        [ $signal = KILL ] || tree_is_free || fail "a kdamond is left after SIG$signal"
    done
    kdamond_runs || fail "nothing is left by SIGKILL: the test tests nothing"
    thermo_says doctor | grep '^  kdamond ' >/tmp/doctor
    grep -q "Left behind: kdamond.0 of thermo $recorder" /tmp/doctor || fail "doctor does not tell: $(cat /tmp/doctor)"
    note "$(sed 's/^ *//' /tmp/doctor)"
    thermo_says record -o /tmp/ended.arrow --tracker kdamond --pid "$pid" --duration 2s || fail "what was left is in the way: $(last_words)"
    tree_is_free || fail "a kdamond is left set up"
}
