# In-kernel DAMON and thermo, one after the other on the same program: how wrong each is about what is hot, and
# how much CPU time it takes. Emulation makes system calls dear, which is to our disadvantage; the numbers are told,
# not judged.

# All regions of the kdamond's last aggregation, in the columns of `thermo report regions --csv`.
tried_regions() {
    local tried=$damon/0/contexts/0/schemes/0/tried_regions region
    echo update_schemes_tried_regions >$damon/0/state || return
    echo time_ns,pid,start,end,nr_accesses,max_nr_accesses
    for region in "$tried"/[0-9]*; do
        echo "0,$pid,$(cat "$region/start"),$(cat "$region/end"),$(cat "$region/nr_accesses"),20"
    done
}

# A scheme that tries everything and does nothing.
add_stat_scheme() {
    local scheme=$damon/0/contexts/0/schemes/0 bound
    echo 1 >$damon/0/contexts/0/schemes/nr_schemes
    echo stat >$scheme/action
    for bound in sz nr_accesses age; do echo 4294967295 >$scheme/access_pattern/$bound/max; done
    echo 1152921504606846976 >$scheme/access_pattern/sz/max
}

kdamond_sees_for() { # SECONDS
    local ticks
    prepare_kdamond && add_stat_scheme && start_kdamond || fail "in-kernel DAMON cannot be started"
    sleep "$1"
    ticks=$(kdamond_ticks)
    tried_regions >/tmp/regions.csv || fail "in-kernel DAMON does not tell its regions"
    compare_with_truth
    stop_kdamond
    # 100 ticks a second.
    note "in-kernel DAMON, $1 s: hot bytes wrong by $error % (precision $precision %, recall $recall %), CPU $((ticks / $1)) %"
}

thermo_sees_for() { # SECONDS OPTIONS...
    local seconds=$1
    shift
    thermo_says record -o /tmp/contest.arrow --duration "${seconds}s" --pid "$pid" "$@" || fail "record ended with $?: $(last_words)"
    judge /tmp/contest.arrow
    thermo_says report info --json /tmp/contest.arrow >/tmp/info.json
    note "thermo $*, $seconds s: hot bytes wrong by $error % (precision $precision %, recall $recall %)," \
        "CPU $(number_of own_cpu_percent </tmp/info.json) %, $(number_of looking_cpu_percent </tmp/info.json) % for looking"
}

contest_with_in_kernel_damon() {
    [ -d $damon ] || skip "this kernel has no DAMON"
    local round
    trap stop_kdamond EXIT
    start_workload hot-cold.cfg
    for round in 1 2 3; do
        kdamond_sees_for 10
        thermo_sees_for 10
        thermo_sees_for 10 --sample 5ms --aggr 100ms
    done
}
