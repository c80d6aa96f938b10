# Tests of the tracker kdamond, which hands a context to the guest's DAMON and removes it afterwards.

need_damon() { [ -d $damon ] || skip "this kernel has no DAMON"; }

damon_is_unused() { [ "$(cat $damon/nr_kdamonds)" = 0 ]; }

kdamond_tracker_separates_targets() {
    need_damon
    local first
    mkdir -p /cgroup/monitored
    start_workload hot-cold.cfg
    first=$pid
    start_workload hot-cold.cfg
    echo "$first" >/cgroup/monitored/cgroup.procs
    echo "$pid" >/cgroup/monitored/cgroup.procs
    run_thermo record -o /tmp/two.arrow --tracker kdamond --cgroup /cgroup/monitored --duration 5s || fail "record ended with $?: $(last_error)"
    run_thermo report regions --last --csv /tmp/two.arrow | cut -d, -f2 | sort -u >/tmp/pids
    grep -qx "$first" /tmp/pids && grep -qx "$pid" /tmp/pids || fail "recorded targets: $(tr '\n' ' ' </tmp/pids)"
    run_thermo report info --json /tmp/two.arrow | grep -q '"tracker":"kdamond"' || fail "the recording does not name the tracker kdamond"
    damon_is_unused || fail "a kdamond was left behind"
}

kdamond_tracker_rejects_foreign_kdamond() {
    need_damon
    local status=0
    start_workload hot-cold.cfg
    trap stop_kdamond EXIT
    prepare_kdamond && start_kdamond || fail "in-kernel DAMON cannot be started"
    rm -f /tmp/refused.arrow
    run_thermo record -o /tmp/refused.arrow --tracker kdamond --pid "$pid" --duration 1s || status=$?
    [ "$status" -eq 2 ] || fail "the command ended with $status, not 2: $(last_error)"
    [ ! -e /tmp/refused.arrow ] || fail "a recording was left behind"
    note "$(last_error)"
    [ "$(cat $damon/0/state)" = on ] || fail "a kdamond of another user was stopped"
    echo off >$damon/0/state
    status=0
    run_thermo record -o /tmp/refused.arrow --tracker kdamond --pid "$pid" --duration 1s || status=$?
    [ "$status" -eq 2 ] && [ "$(cat $damon/nr_kdamonds)" = 1 ] || fail "a configured kdamond of another user that was off was replaced: status $status"
    note "$(last_error)"
}

# Schemes and options that the kernel does not support for processes are errors. Supported ones are applied.
kdamond_tracker_translates_schemes() {
    need_damon
    local status=0
    start_workload hot-cold.cfg
    echo 'min max min max min max lru_prio' >/tmp/line.damos
    run_thermo schemes apply --tracker kdamond --pid "$pid" --duration 1s /tmp/line.damos || status=$?
    [ "$status" -eq 2 ] || fail "lru_prio ended with $status, not 2: $(last_error)"
    note "$(last_error)"
    status=0
    run_thermo record -o /tmp/refused.arrow --tracker kdamond --cpu 1% --pid "$pid" --duration 1s || status=$?
    [ "$status" -eq 2 ] || fail "--cpu ended with $status, not 2: $(last_error)"
    note "$(last_error)"
    echo '4K max min max min max nohugepage' >/tmp/line.damos
    run_thermo schemes apply --tracker kdamond --pid "$pid" --duration 4s --json /tmp/line.damos >/tmp/applied.json ||
        fail "schemes apply ended with $?: $(last_error)"
    changed=$(number_of sz_applied </tmp/applied.json)
    [ "${changed:-0}" -gt 0 ] || fail "nohugepage was not applied: $(cat /tmp/applied.json)"
    note "nohugepage applied to $changed bytes"
    damon_is_unused || fail "a kdamond was left behind"
}

kdamond_tracker_pages_out() {
    need_damon
    make_swap
    start_workload hot-cold.cfg
    echo '4K max 0 0 2s max pageout' >/tmp/pageout.damos
    check_cold_memory_is_swapped thermo schemes apply --tracker kdamond --pid "$pid" --json /tmp/pageout.damos
    damon_is_unused || fail "a kdamond was left behind"
}

kdamond_runs() { [ "$(cat $damon/0/state 2>/dev/null)" = on ]; }

kdamond_tracker_cleans_up() {
    need_damon
    local recorder signal
    start_workload hot-cold.cfg
    for signal in INT TERM KILL; do
        thermo record -o /tmp/ended.arrow --tracker kdamond --pid "$pid" 2>/tmp/stderr &
        recorder=$!
        kill_at_end "$recorder"
        wait_until "a kdamond runs" kdamond_runs
        kill -$signal "$recorder"
        wait_until "record ends" has_ended "$recorder"
        [ $signal = KILL ] || damon_is_unused || fail "a kdamond was left behind after SIG$signal"
    done
    kdamond_runs || fail "SIGKILL left no kdamond behind, so the cleanup is not tested"
    run_thermo doctor | grep '^  kdamond ' >/tmp/doctor
    grep -q "Left behind: kdamond.0 of thermo $recorder" /tmp/doctor || fail "doctor does not report the kdamond: $(cat /tmp/doctor)"
    note "$(sed 's/^ *//' /tmp/doctor)"
    run_thermo record -o /tmp/ended.arrow --tracker kdamond --pid "$pid" --duration 2s || fail "record failed because of the kdamond left behind: $(last_error)"
    damon_is_unused || fail "a kdamond was left behind"
}
