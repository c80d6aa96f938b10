# Accessed marks that somebody else clears too: in-kernel DAMON on the same process, and MGLRU's ageing.

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

# CPU ticks of the thread so far.
kdamond_ticks() { awk '{ print $14 + $15 }' "/proc/$(cat $damon/0/pid)/stat"; }

a_kdamond_that_looks_too_takes_little_away() {
    [ -d $damon ] || skip "this kernel has no DAMON"
    local alone_precision alone_recall
    start_workload hot-cold.cfg
    # shellcheck disable=SC2086,SC2154
    sees_the_hot_part $intervals --pid "$pid"
    alone_precision=$precision alone_recall=$recall
    trap stop_kdamond EXIT
    prepare_kdamond && start_kdamond || fail "in-kernel DAMON cannot be started"
    # shellcheck disable=SC2086
    sees_the_hot_part $intervals --pid "$pid"
    thermo_says doctor | grep '^  kdamond ' | sed "s/^ */# $name: doctor: /"
    thermo_says report info --json /tmp/seen.arrow | grep -q 'of in-kernel DAMON looks, too' || fail "the report does not tell of the kdamond"
    note "alone $alone_precision % and $alone_recall %, beside a kdamond ($(kdamond_ticks) ticks of CPU) $precision % and $recall %"
}

# How much of what is known changes when a kdamond looks, too. Both kinds of kdamond, and both ways of ours; with a
# budget that even an emulated machine sees something for.
second_consumer_is_measured() {
    [ -d $damon ] || skip "this kernel has no DAMON"
    local kind method alone
    start_workload hot-cold.cfg
    trap stop_kdamond EXIT
    for method in scan sampling; do
        is_seen_beside nobody 20 --tracker pte --cpu 50% --method $method
        alone=$error
        for kind in vaddr paddr; do
            prepare_kdamond && watch_by $kind && start_kdamond || fail "in-kernel DAMON cannot be started"
            is_seen_beside $kind $((alone + 5)) --tracker pte --cpu 50% --method $method
            stop_kdamond
        done
    done
}

# How many of the hot bytes are told wrongly beside somebody; sets error. A snapshot is a sample, and the host is shared:
# what is too much is looked at again, for longer.
is_seen_beside() { # WHO MOST_PERCENT OPTIONS OF record...
    local who=$1 most=$2 seconds
    shift 2
    for seconds in ${durations:-20 40 60}; do
        thermo_says record -o /tmp/beside.arrow "$@" --pid "$pid" --duration "${seconds}s" || fail "record ended with $?: $(last_words)"
        judge /tmp/beside.arrow
        note "beside $who ($*): hot bytes wrong by $error % (precision $precision %, recall $recall %)"
        [ "$error" -gt "$most" ] || return 0
    done
    fail "beside $who ($*): hot bytes wrong by $error %; at most $most % are wanted"
}

# One who ages all generations ten times a second (MGLRU does so when memory is short), which keeps no young flag: what
# it costs in memory that is touched a few times a second. (That MGLRU is on is told before monitoring starts.)
ageing_by_mglru_is_measured() {
    local lru_gen=/sys/kernel/debug/lru_gen alone oldest aged
    grep -qs '^memcg' $lru_gen || skip "this kernel has no MGLRU, or does not show it"
    echo 7 >/sys/kernel/mm/lru_gen/enabled || fail "MGLRU cannot be switched on"
    note "$(tr '\n' '|' <$lru_gen)"
    without_huge_pages
    start_touching seldom.cfg --truth-span 2s
    finds_what_is_touched nobody
    alone=$found
    oldest=$(youngest_generation $lru_gen)
    age_on_and_on $lru_gen &
    to_be_stopped $!
    finds_what_is_touched "MGLRU's ageing"
    aged=$(($(youngest_generation $lru_gen | cut -d' ' -f2) - ${oldest#* }))
    note "of what is touched $alone % are found alone, $found % beside MGLRU's ageing ($aged generations)"
    [ "$aged" -gt 10 ] || fail "nothing was aged: $(cat /tmp/ageing)"
}

# Sets found: how many percent of the bytes that were touched between two pictures the second one tells of.
finds_what_is_touched() { # BESIDE WHOM
    thermo_says record -o /tmp/beside.arrow --tracker pte --method scan --cpu 3% --pid "$pid" --duration 30s ||
        fail "record ended with $?: $(last_words)"
    says thermo-lab monitor --judge /tmp/beside.arrow --truth /tmp/truth.jsonl --json >/tmp/judged.json ||
        fail "beside $1 nothing could be judged: $(last_words)"
    found=$(sed -n 's/.*"recall": *\([0-9.]*\).*/\1/p' /tmp/judged.json | awk '{ printf "%.1f", 100 * $1; exit }')
}

# The number of the root's group, and that of its youngest generation on the first node: in the last line of its table.
youngest_generation() { # FILE
    awk '$1 == "memcg" { if (seen++) exit; group = $2 } NF > 1 && $1 ~ /^[0-9]+$/ { newest = $1 } END { print group, newest }' "$1"
}
age_on_and_on() { # FILE
    local youngest
    while youngest=$(youngest_generation "$1"); do
        echo "+ ${youngest% *} 0 ${youngest#* } 1 1" >"$1" || break
        sleep 0.1
    done 2>/tmp/ageing
}

# All of the machine's memory, for paddr.
watch_by() { # OPERATIONS
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
