# Tests of the idle-page bitmap, for the kernel of idle-kernel.sh. guest.sh reads the list of names.
idle_tests="idle_is_usable every_tracker_finds_hot_and_cold every_tracker_ends_with_its_target no_tracker_splits_huge_pages idle_reports_shared_memory paddr_finds_hot_frames paddr_requires_system pte_is_accurate_with_idle_bitmap"

need_idle_bitmap() { [ -e /sys/kernel/mm/page_idle/bitmap ] || skip "this kernel has no idle-page bitmap"; }

idle_is_usable() {
    need_idle_bitmap
    local tracker
    run_thermo doctor --json >/out/doctor.json || fail "doctor ended with $?: $(last_error)"
    for tracker in idle paddr; do
        grep -o '{"available":true,"name":"[a-z]*"' /out/doctor.json | grep -q "\"$tracker\"" || fail "$(run_thermo doctor | grep "  $tracker ")"
    done
    note "$(run_thermo doctor | grep '  pte ' | sed 's/^ */doctor: /')"
}

# Two processes map one file. MADV_COLD skips such pages, the bitmap does not.
idle_reports_shared_memory() {
    need_idle_bitmap
    start_workload hot-cold.cfg
    # shellcheck disable=SC2154,SC2086
    run_thermo record -o /tmp/shared.arrow --tracker idle $intervals --pid "$pid" --duration 10s || fail "record ended with $?: $(last_error)"
    unknown=$(run_thermo report info --json /tmp/shared.arrow | grep -o '"unknown_share":[0-9.]*' | cut -d: -f2)
    note "unknown: $unknown of the memory, including libraries"
    awk -v share="$unknown" 'BEGIN { exit !(share < 0.2) }' || fail "$unknown of the memory is unknown"
}

# Physical addresses of the hot part according to pagemap: start and end of each run of frames.
hot_frames() {
    local start end entry
    last_truth | sed 's/.*"ranges":\[\[//; s/\]\]}//; s/\],\[/\n/g' | tr ',' ' ' >/tmp/truth
    read -r start end </tmp/truth
    dd if="/proc/$pid/pagemap" bs=8 skip=$((start / 4096)) count=$(((end - start) / 4096)) 2>/dev/null |
        od -An -v -t x8 -w8 | while read -r entry; do
            # The present bit is set. In a small machine the frame number fits in the lower half of the entry.
            case $entry in [89a-f]*) echo $((0x${entry#????????})) ;; esac
        done | sort -n | awk '
            $1 != end { if (NR > 1) print start * 4096, end * 4096; start = $1 }
            { end = $1 + 1 }
            END { if (NR) print start * 4096, end * 4096 }'
}

# paddr monitors all memory and also reports hot frames of other processes, so only recall is checked.
paddr_finds_hot_frames() {
    need_idle_bitmap
    local seconds recall=0
    start_workload hot-cold.cfg
    for seconds in 10 20 40 80; do
        run_thermo record -o /tmp/paddr.arrow --tracker paddr --system --sample 100ms --aggr 1s --min-regions 300 --max-regions 1000 --duration "${seconds}s" ||
            fail "record ended with $?: $(last_error)"
        run_thermo report regions --last --csv /tmp/paddr.arrow >/tmp/regions.csv || fail "report ended with $?: $(last_error)"
        hot_frames >/tmp/truth
        read -r precision recall error <<-RESULT
			$(awk -f /accuracy.awk /tmp/truth /tmp/regions.csv)
		RESULT
        note "after $seconds s: $recall % of the hot frames found (in $(wc -l </tmp/truth) runs)"
        [ "$recall" -lt 50 ] || break
    done
    [ "$recall" -ge 50 ] || fail "only $recall % of the hot frames were found, 50 % are required"
    run_thermo report info --json /tmp/paddr.arrow | grep -q '"tracker":"paddr"' || fail "the recording does not name the tracker paddr"
}

paddr_requires_system() {
    need_idle_bitmap
    local status=0
    run_thermo record -o /tmp/refused.arrow --tracker paddr --pid 1 --duration 1s || status=$?
    [ "$status" -eq 2 ] || fail "the command ended with $status, not 2: $(last_error)"
    last_error | grep -q -- --system || fail "the error does not name --system: $(last_error)"
    [ ! -e /tmp/refused.arrow ] || fail "a recording was left behind"
}

# The idle-page bitmap clears accessed bits and sets the young flag of folios, as DAMON does.
pte_is_accurate_with_idle_bitmap() {
    need_idle_bitmap
    run_thermo doctor --json | grep -q '"available":true,"name":"pte"' || skip "page tables cannot be read on this kernel"
    start_workload hot-cold.cfg
    check_error_with "no other monitor" 20 --tracker pte --cpu 50%
    # shellcheck disable=SC2086
    thermo record -o /tmp/idle.arrow --tracker idle $intervals --pid "$pid" 2>/dev/null &
    kill_at_end $!
    check_error_with "tracker idle" $((error + 5)) --tracker pte --cpu 50%
}
