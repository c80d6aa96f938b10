# Requirements on every tracker, checked for each one that this kernel supports: pte, smaps, kdamond, idle.
# The simulated machine is checked by crates/engine/tests. Shared memory, which only pte reports as unknown,
# is checked by crates/runtime/tests/live_pte.rs.

# Calls FUNCTION for each available tracker, with intervals that suit it: an access check of thermo takes
# milliseconds in an emulated machine.
for_each_tracker() { # FUNCTION
    local tracker options any=
    for tracker in pte smaps kdamond idle; do
        run_thermo doctor --json | grep -o '{"available":true,"name":"[a-z]*"' | grep -q "\"$tracker\"" || continue
        # shellcheck disable=SC2154
        case $tracker in
            kdamond) options="--tracker kdamond" ;;
            *) options="--tracker $tracker $intervals" ;;
        esac
        "$1" "$tracker" "$options"
        any=$tracker
    done
    [ -n "$any" ] || fail "doctor reports no available tracker: $(last_error)"
}

# smaps distinguishes whole mappings only.
workload_for() { # TRACKER
    case $1 in
        smaps) start_workload hot.cfg ;;
        *) start_workload hot-cold.cfg ;;
    esac
}

check_hot_and_cold() { # TRACKER OPTIONS
    workload_for "$1"
    # shellcheck disable=SC2086
    find_hot_memory $2 --pid "$pid"
    kill -KILL "$pid"
}

check_end_of_target() { # TRACKER OPTIONS
    local recorder
    workload_for "$1"
    rm -f /tmp/ended.arrow
    # shellcheck disable=SC2086
    thermo record -o /tmp/ended.arrow $2 --pid "$pid" 2>/tmp/stderr &
    recorder=$!
    kill_at_end "$recorder"
    wait_until "$1: the recording exists" test -s /tmp/ended.arrow
    kill -KILL "$pid"
    wait_until "$1: record ends" has_ended "$recorder"
    wait "$recorder" || fail "$1: record ended with $?: $(last_error)"
}

huge_kib() { awk '$1 == "AnonHugePages:" { print $2 }' "/proc/$pid/smaps_rollup"; }

# khugepaged may add huge pages, so the amount may grow.
check_no_split() { # TRACKER OPTIONS
    local before
    start_workload hot-cold.cfg --huge-pages
    before=$(huge_kib)
    note "$1: AnonHugePages $before KiB"
    [ "$before" -gt 0 ] || fail "$1: the workload has no huge pages, the mode is $(cat /sys/kernel/mm/transparent_hugepage/enabled)"
    # shellcheck disable=SC2086
    run_thermo record -o /tmp/huge.arrow $2 --pid "$pid" --duration 5s || fail "$1: record ended with $?: $(last_error)"
    [ "$(huge_kib)" -ge "$before" ] || fail "$1: AnonHugePages shrank from $before KiB to $(huge_kib) KiB"
    kill -KILL "$pid"
}

every_tracker_finds_hot_and_cold() { for_each_tracker check_hot_and_cold; }
every_tracker_ends_with_its_target() { for_each_tracker check_end_of_target; }
no_tracker_splits_huge_pages() { for_each_tracker check_no_split; }
