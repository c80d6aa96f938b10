# What every tracker must do alike, run with each that is here: pte, smaps, kdamond (idle, where a kernel has its
# bitmap). The simulated machine is held to the same by crates/engine/tests; that shared memory is unknown, which pte alone
# can say, by crates/runtime/tests/live_pte.rs.

# Each tracker with the intervals that suit it: one look of ours costs milliseconds here.
for_each_tracker() { # FUNCTION
    local tracker options some=
    for tracker in pte smaps kdamond idle; do
        thermo_says doctor --json | grep -o '{"available":true,"name":"[a-z]*"' | grep -q "\"$tracker\"" || continue
        # shellcheck disable=SC2154
        case $tracker in
            kdamond) options="--tracker kdamond" ;;
            *) options="--tracker $tracker $intervals" ;;
        esac
        "$1" "$tracker" "$options"
        some=$tracker
    done
    [ -n "$some" ] || fail "doctor tells of no tracker that is here: $(last_words)"
}

# A mapping is all that smaps tells apart.
workload_for() { # TRACKER
    case $1 in
        smaps) start_workload hot.cfg ;;
        *) start_workload hot-cold.cfg ;;
    esac
}

finds_hot_and_cold() { # TRACKER OPTIONS
    workload_for "$1"
    # shellcheck disable=SC2086
    sees_the_hot_part $2 --pid "$pid"
    kill -KILL "$pid"
}

notices_an_exit() { # TRACKER OPTIONS
    local recorder
    workload_for "$1"
    rm -f /tmp/ended.arrow
    # shellcheck disable=SC2086
    thermo record -o /tmp/ended.arrow $2 --pid "$pid" 2>/tmp/stderr &
    recorder=$!
    to_be_stopped "$recorder"
    wait_until "$1: the file is begun" test -s /tmp/ended.arrow
    kill -KILL "$pid"
    wait_until "$1: record ends" gone "$recorder"
    wait "$recorder" || fail "$1: record ended with $?: $(last_words)"
}

huge_kib() { awk '$1 == "AnonHugePages:" { print $2 }' "/proc/$pid/smaps_rollup"; }

# khugepaged may only add some.
splits_no_huge_page() { # TRACKER OPTIONS
    local before
    start_workload hot-cold.cfg --huge-pages
    before=$(huge_kib)
    note "$1: AnonHugePages $before KiB"
    [ "$before" -gt 0 ] || fail "$1: there is no huge page to be split, the mode is $(cat /sys/kernel/mm/transparent_hugepage/enabled)"
    # shellcheck disable=SC2086
    thermo_says record -o /tmp/huge.arrow $2 --pid "$pid" --duration 5s || fail "$1: record ended with $?: $(last_words)"
    [ "$(huge_kib)" -ge "$before" ] || fail "$1: AnonHugePages was $before KiB and is $(huge_kib) KiB"
    kill -KILL "$pid"
}

every_tracker_finds_hot_and_cold() { for_each_tracker finds_hot_and_cold; }
every_tracker_notices_an_exit() { for_each_tracker notices_an_exit; }
no_tracker_splits_huge_pages() { for_each_tracker splits_no_huge_page; }
