# Interference: other consumers that clear accessed bits, in-kernel DAMON on the same process and MGLRU's
# ageing.

damon=/sys/kernel/mm/damon/admin/kdamonds

prepare_kdamond() {
    echo 1 >$damon/nr_kdamonds
    echo 1 >$damon/0/contexts/nr_contexts
    echo vaddr >$damon/0/contexts/0/operations
    echo 1 >$damon/0/contexts/0/targets/nr_targets
    echo "$pid" >$damon/0/contexts/0/targets/0/pid_target
}

start_kdamond() {
    echo on >$damon/0/state && [ "$(cat $damon/0/state)" = on ]
}

stop_kdamond() {
    [ -d $damon/0 ] || return 0
    echo off >$damon/0/state
    echo 0 >$damon/nr_kdamonds
}

# CPU time of the kdamond's thread in clock ticks.
kdamond_ticks() { awk '{ print $14 + $15 }' "/proc/$(cat $damon/0/pid)/stat"; }

pte_is_accurate_with_kdamond() {
    [ -d $damon ] || skip "this kernel has no DAMON"
    local alone_precision alone_recall
    start_workload hot-cold.cfg
    # shellcheck disable=SC2086,SC2154
    find_hot_memory $intervals --pid "$pid"
    alone_precision=$precision alone_recall=$recall
    trap stop_kdamond EXIT
    prepare_kdamond && start_kdamond || fail "in-kernel DAMON cannot be started"
    # shellcheck disable=SC2086
    find_hot_memory $intervals --pid "$pid"
    run_thermo doctor | grep '^  kdamond ' | sed "s/^ */# $name: doctor: /"
    run_thermo report info --json /tmp/seen.arrow | grep -q 'of in-kernel DAMON also clears accessed bits' || fail "the report does not mention the kdamond"
    note "precision and recall: alone $alone_precision % and $alone_recall %, with a kdamond ($(kdamond_ticks) ticks of CPU) $precision % and $recall %"
}

# The error added by a kdamond, for both kinds of kdamond and both monitoring methods. The budget is large
# enough for an emulated machine.
kdamond_adds_little_error() {
    [ -d $damon ] || skip "this kernel has no DAMON"
    local kind method alone
    start_workload hot-cold.cfg
    trap stop_kdamond EXIT
    for method in scan sampling; do
        check_error_with "no other monitor" 20 --tracker pte --cpu 50% --method $method
        alone=$error
        for kind in vaddr paddr; do
            prepare_kdamond && set_operations $kind && start_kdamond || fail "in-kernel DAMON cannot be started"
            check_error_with $kind $((alone + 5)) --tracker pte --cpu 50% --method $method
            stop_kdamond
        done
    done
}

# Checks that the error of hot bytes is at most MAX_PERCENT while WHO monitors too; sets error. A snapshot is
# a sample and the host is shared, so a larger error is measured again for longer.
check_error_with() { # WHO MAX_PERCENT OPTIONS OF record...
    local who=$1 max=$2 seconds
    shift 2
    for seconds in ${durations:-20 40 60}; do
        run_thermo record -o /tmp/interfered.arrow "$@" --pid "$pid" --duration "${seconds}s" || fail "record ended with $?: $(last_error)"
        judge /tmp/interfered.arrow
        note "with $who ($*): error of hot bytes $error % (precision $precision %, recall $recall %)"
        [ "$error" -gt "$max" ] || return 0
    done
    fail "with $who ($*): error of hot bytes $error %; the limit is $max %"
}

# Ages all generations ten times a second, as MGLRU does under memory pressure, which does not set the young
# flag. Measures the loss for memory that is touched a few times a second.
mglru_ageing_is_measured() {
    local lru_gen=/sys/kernel/debug/lru_gen alone oldest aged
    grep -qs '^memcg' $lru_gen || skip "this kernel has no MGLRU, or does not show it"
    echo 7 >/sys/kernel/mm/lru_gen/enabled || fail "MGLRU cannot be switched on"
    note "$(tr '\n' '|' <$lru_gen)"
    without_huge_pages
    start_touching seldom.cfg --truth-span 2s
    measure_recall "no other consumer"
    alone=$found
    oldest=$(youngest_generation $lru_gen)
    age_repeatedly $lru_gen &
    kill_at_end $!
    measure_recall "MGLRU's ageing"
    aged=$(($(youngest_generation $lru_gen | cut -d' ' -f2) - ${oldest#* }))
    note "recall of touched bytes: $alone % alone, $found % with MGLRU's ageing ($aged generations)"
    [ "$aged" -gt 10 ] || fail "only $aged generations were aged: $(cat /tmp/ageing)"
}

# Sets found to the recall in percent: the share of bytes touched between two snapshots that the second one
# reports.
measure_recall() { # OTHER CONSUMER
    run_thermo record -o /tmp/interfered.arrow --tracker pte --method scan --cpu 3% --pid "$pid" --duration 30s ||
        fail "record ended with $?: $(last_error)"
    run_logged thermo-lab monitor --judge /tmp/interfered.arrow --truth /tmp/truth.jsonl --json >/tmp/judged.json ||
        fail "with $1: the recording could not be evaluated: $(last_error)"
    found=$(sed -n 's/.*"recall": *\([0-9.]*\).*/\1/p' /tmp/judged.json | awk '{ printf "%.1f", 100 * $1; exit }')
}

# Prints the number of the root group and that of its youngest generation on the first node.
youngest_generation() { # FILE
    awk '$1 == "memcg" { if (seen++) exit; group = $2 } NF > 1 && $1 ~ /^[0-9]+$/ { newest = $1 } END { print group, newest }' "$1"
}
age_repeatedly() { # FILE
    local youngest
    while youngest=$(youngest_generation "$1"); do
        echo "+ ${youngest% *} 0 ${youngest#* } 1 1" >"$1" || break
        sleep 0.1
    done 2>/tmp/ageing
}

# For paddr: sets the operations, and the machine's memory as regions.
set_operations() { # OPERATIONS
    [ "$1" = paddr ] || return 0
    local ram nth=0
    echo paddr >$damon/0/contexts/0/operations
    echo 1 >$damon/0/contexts/0/targets/nr_targets
    grep 'System RAM' /proc/iomem | sed 's/^ *//; s/ :.*//' >/tmp/ram
    echo "$(wc -l </tmp/ram)" >$damon/0/contexts/0/targets/0/regions/nr_regions
    while read -r ram; do
        echo $((0x${ram%-*})) >$damon/0/contexts/0/targets/0/regions/$nth/start
        echo $((0x${ram#*-} + 1)) >$damon/0/contexts/0/targets/0/regions/$nth/end
        nth=$((nth + 1))
    done </tmp/ram
}
