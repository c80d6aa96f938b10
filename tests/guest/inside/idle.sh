# The idle-page bitmap, on the one kernel that has it. The names are read by guest.sh.
idle_tests="idle_is_usable every_tracker_finds_hot_and_cold every_tracker_notices_an_exit no_tracker_splits_huge_pages idle_tells_of_shared_memory paddr_finds_the_hot_frames paddr_is_refused_without_the_machine idle_beside_pte_takes_little_away"

need_idle() { [ -e /sys/kernel/mm/page_idle/bitmap ] || skip "this kernel has no idle-page bitmap"; }

idle_is_usable() {
    need_idle
    local tracker
    thermo_says doctor --json >/out/doctor.json || fail "doctor ended with $?: $(last_words)"
    for tracker in idle paddr; do
        grep -o '{"available":true,"name":"[a-z]*"' /out/doctor.json | grep -q "\"$tracker\"" || fail "$(thermo_says doctor | grep "  $tracker ")"
    done
    note "$(thermo_says doctor | grep '  pte ' | sed 's/^ */doctor: /')"
}

# Two processes that map one file: MADV_COLD passes over it, and the bitmap does not.
idle_tells_of_shared_memory() {
    need_idle
    start_workload hot-cold.cfg
    # shellcheck disable=SC2154,SC2086
    thermo_says record -o /tmp/shared.arrow --tracker idle $intervals --pid "$pid" --duration 10s || fail "record ended with $?: $(last_words)"
    unknown=$(thermo_says report info --json /tmp/shared.arrow | grep -o '"unknown_share":[0-9.]*' | cut -d: -f2)
    note "unknown: $unknown of the memory, its libraries' included"
    awk -v share="$unknown" 'BEGIN { exit !(share < 0.2) }' || fail "$unknown of the memory is unknown"
}

# Physical addresses of the hot part, by what the kernel says backs it: first byte and end of each run of frames.
hot_frames() {
    local start end entry
    last_truth | sed 's/.*"ranges":\[\[//; s/\]\]}//; s/\],\[/\n/g' | tr ',' ' ' >/tmp/truth
    read -r start end </tmp/truth
    dd if="/proc/$pid/pagemap" bs=8 skip=$((start / 4096)) count=$(((end - start) / 4096)) 2>/dev/null |
        od -An -v -t x8 -w8 | while read -r entry; do
            # Present; frames of so small a machine are in the lower half.
            case $entry in [89a-f]*) echo $((0x${entry#????????})) ;; esac
        done | sort -n | awk '
            $1 != end { if (NR > 1) print start * 4096, end * 4096; start = $1 }
            { end = $1 + 1 }
            END { if (NR) print start * 4096, end * 4096 }'
}

# All of memory is watched, so that others' hot frames are told, too: only what is found of ours is judged.
paddr_finds_the_hot_frames() {
    need_idle
    local seconds recall=0
    start_workload hot-cold.cfg
    for seconds in 10 20 40 80; do
        thermo_says record -o /tmp/paddr.arrow --tracker paddr --system --sample 100ms --aggr 1s --min-regions 300 --max-regions 1000 --duration "${seconds}s" ||
            fail "record ended with $?: $(last_words)"
        thermo_says report regions --last --csv /tmp/paddr.arrow >/tmp/regions.csv || fail "report ended with $?: $(last_words)"
        hot_frames >/tmp/truth
        read -r precision recall error <<-RESULT
			$(awk -f /accuracy.awk /tmp/truth /tmp/regions.csv)
		RESULT
        note "after $seconds s: $recall % of the hot frames are found (in $(wc -l </tmp/truth) runs)"
        [ "$recall" -lt 50 ] || break
    done
    [ "$recall" -ge 50 ] || fail "$recall % of the hot frames were found"
    thermo_says report info --json /tmp/paddr.arrow | grep -q '"tracker":"paddr"' || fail "not recorded as paddr's"
}

paddr_is_refused_without_the_machine() {
    need_idle
    local status=0
    thermo_says record -o /tmp/refused.arrow --tracker paddr --pid 1 --duration 1s || status=$?
    [ "$status" -eq 2 ] || fail "it ended with $status, not 2: $(last_words)"
    last_words | grep -q -- --system || fail "the way out is not named: $(last_words)"
    [ ! -e /tmp/refused.arrow ] || fail "a file is left"
}

# The other consumer that keeps the young flag.
idle_beside_pte_takes_little_away() {
    need_idle
    thermo_says doctor --json | grep -q '"available":true,"name":"pte"' || skip "page tables cannot be read on this kernel"
    start_workload hot-cold.cfg
    is_seen_beside nobody 20 --tracker pte --cpu 50%
    # shellcheck disable=SC2086
    thermo record -o /tmp/idle.arrow --tracker idle $intervals --pid "$pid" 2>/dev/null &
    to_be_stopped $!
    is_seen_beside "the bitmap's user" $((error + 5)) --tracker pte --cpu 50%
}
