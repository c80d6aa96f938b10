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

# Kills at random moments, a third of them while the command starts. What a kill leaves is listed by
# `doctor --leftovers`, and the commands that it prints undo it.
claims_of_killed_thermo_are_listed_and_undone() {
    need_damon
    local kills=${claim_kills:-20} nth recorder acting unclaimed=0 off=0 on=0
    start_workload hot-cold.cfg
    for nth in $(seq "$kills"); do
        rm -f /tmp/ended.arrow
        thermo record -o /tmp/ended.arrow --tracker kdamond --pid "$pid" 2>/tmp/stderr &
        recorder=$!
        kill_at_end "$recorder"
        acting=$((nth % 3))
        [ "$acting" = 0 ] || wait_until "DAMON is claimed" is_claimed_by "$recorder"
        sleep "$((RANDOM % 2)).$((RANDOM % 10))"
        kill -KILL "$recorder" || fail "kill $nth: record ended before: $(last_error)"
        wait "$recorder"
        case "$(cat $damon/nr_kdamonds) $(cat $damon/0/state 2>/dev/null)" in
            "0 ") unclaimed=$((unclaimed + 1)) ;;
            "1 off") off=$((off + 1)) ;;
            "1 on") on=$((on + 1)) ;;
            *) fail "kill $nth: $(cat $damon/nr_kdamonds) kdamonds, the first is $(cat $damon/0/state)" ;;
        esac
        undo_claim "$recorder" || fail "kill $nth: $(cat /tmp/leftovers) $(last_error)"
    done
    note "$kills kills: a kdamond ran $on times, was only set up $off times, was not there $unclaimed times"
    [ "$on" -gt 0 ] || fail "no kill left a kdamond that runs"
}

is_claimed_by() { grep -q "^$1 " /run/thermocline/kdamond 2>/dev/null; } # PID

# Runs the command that `doctor --leftovers` prints for a kdamond of process PID. Without a kdamond, nothing
# may be listed.
undo_claim() { # PID
    local command
    run_thermo doctor --leftovers >/tmp/leftovers
    if damon_is_unused; then
        ! grep -q '^kdamond ' /tmp/leftovers
        return
    fi
    grep -q "^kdamond left by thermo (pid $1), which was killed" /tmp/leftovers || return 1
    command=$(sed -n 's/^  kdamond.*`\(.*\)`.*/\1/p' /tmp/leftovers)
    run_logged sh -c "$command" && damon_is_unused && run_thermo doctor --leftovers >/tmp/leftovers
}
