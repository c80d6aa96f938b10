# LRU sorting on kernels with MGLRU, which do not show the generation of a page. The effect is visible in
# reclaim: memory moved down is reclaimed first, memory moved up stays, whatever their ages.

# Number of pages of a region that are resident or in swap: bit 63 or 62 of a pagemap entry, in its highest
# hex digit.
pages_of() { # resident|swapped REGION
    local range first bytes digits=4567
    [ "$1" = swapped ] || digits=89abcdef
    range=$(region "$2")
    first=$((${range%-*}))
    bytes=$((${range#*-} - first))
    dd if="/proc/$pid/pagemap" bs=4096 skip=$((first / 4096 * 8 / 4096)) count=$((bytes / 4096 * 8 / 4096)) 2>/dev/null |
        hexdump -v -e '8/1 "%02x" "\n"' | grep -c "^..............[$digits]"
}

lru_lists_of() { # GROUP
    awk '$1 == "active_anon" || $1 == "inactive_anon" { printf " %s %d MiB", $1, $2 / 1048576 }' "$1/memory.stat"
}

active_at_least() { # MIB GROUP
    awk -v mib="$1" '$1 == "active_anon" { enough = $2 >= mib * 1048576 } END { exit !enough }' "$2/memory.stat"
}

hint() { # ACTION REGION
    local range
    range=$(region "$2")
    run_thermo hint "$1" --pid "$pid" --range "$range" >/dev/null || fail "hint $1 ended with $?: $(last_error)"
}

# Reclaims a quarter of $resident pages. True if at least 1/PARTS of them are in swap for this region. More
# than a quarter at once would make the inactive list short, and the kernel would refill it from the active
# list.
is_reclaimed() { # PARTS REGION
    echo $((resident * 1024)) >"$group/memory.reclaim" 2>/dev/null
    [ "$(pages_of swapped "$2")" -ge $((resident / $1)) ]
}

# Starts the workload with two halves in the control group $group, which has memory.reclaim.
start_halves() {
    echo +memory >/cgroup/cgroup.subtree_control || skip "this kernel has no memory controller"
    mkdir -p "$group"
    [ -e "$group/memory.reclaim" ] || skip "this kernel cannot reclaim a group on demand"
    # lru_prio cannot move huge pages.
    [ ! -e /sys/kernel/mm/transparent_hugepage/enabled ] || without_huge_pages
    # Memory is charged to the group of the process at the first touch.
    echo 0 >"$group/cgroup.procs"
    start_workload halves.cfg
    echo 0 >/cgroup/cgroup.procs
}

# Moves one half up and the other down, reclaims a quarter of the latter's size, and checks which half was
# reclaimed. The resident size of both depends on how many pages the emulated workload has touched.
check_reclaim_order() { # UP DOWN
    local group=/cgroup/sorted up down before resident
    start_halves
    before=$(lru_lists_of "$group")
    hint lru_prio "$1"
    # With MGLRU, memory.stat counts young generations as active. Only without MGLRU is there an active list
    # to check.
    [ "$(cat /sys/kernel/mm/lru_gen/enabled)" != 0x0000 ] || wait_until "$1 is active" active_at_least $(($(pages_of resident "$1") / 512)) "$group"
    note "$1 up:$(lru_lists_of "$group"), before:$before"
    hint lru_deprio "$2"
    note "$2 down:$(lru_lists_of "$group")"
    resident=$(pages_of resident "$2")
    [ "$resident" -ge 512 ] || fail "only $resident pages of $2 are resident, 512 are required"
    # Repeat: the first attempts may reclaim only a page or two. memory.reclaim reports an error if it
    # reclaims too little.
    poll_until is_reclaimed 8 "$2" || true
    up=$(pages_of swapped "$1")
    down=$(pages_of swapped "$2")
    note "swapped pages: $up of the half moved up, $down of the half moved down; lru_gen $(cat /sys/kernel/mm/lru_gen/enabled)"
    [ "$down" -ge $((resident / 8)) ] || fail "only $down of $resident pages of the half moved down were reclaimed"
    [ "$down" -gt $((2 * up)) ] || fail "$up pages of the half moved up were reclaimed, and $down of the half moved down"
}

lru_sort_decides_reclaim_order() {
    make_swap
    check_reclaim_order one two
}

lru_sort_overrides_age() {
    make_swap
    check_reclaim_order two one
}

# Prints the number of the group /sorted, then the numbers of its generations, oldest first.
generations_of_sorted() { awk '$1 == "memcg" { on = $3 == "/sorted"; if (on) print $2 } on && NF > 2 && $1 != "memcg" { print $1 }' /sys/kernel/debug/lru_gen; }

# Ages both halves twice, so that no accessed bit is left and both are in the oldest generation.
age_both_halves() {
    local group youngest
    for _ in 1 2; do
        group=$(generations_of_sorted | head -n 1)
        youngest=$(generations_of_sorted | tail -n 1)
        echo "+ $group 0 $youngest 1 1" >/sys/kernel/debug/lru_gen || fail "generation $youngest of group $group cannot be aged"
    done
}

# Moves one half up while both are in the oldest generation without accessed bits. Without the move, the
# kernel would reclaim both in the order of their allocation.
lru_prio_protects_among_equal_ages() {
    local group=/cgroup/sorted resident up others
    grep -qs '^memcg' /sys/kernel/debug/lru_gen || skip "this kernel has no MGLRU, or does not show it"
    [ "$(cat /sys/kernel/mm/lru_gen/enabled)" != 0x0000 ] || skip "MGLRU is switched off"
    make_swap
    start_halves
    age_both_halves
    hint lru_prio two
    resident=$(pages_of resident one)
    [ "$resident" -ge 512 ] || fail "only $resident pages of one are resident, 512 are required"
    poll_until is_reclaimed 2 one || true
    up=$(pages_of swapped two)
    others=$(pages_of swapped one)
    note "swapped pages: $up of the half moved up, $others of the other half"
    [ "$others" -ge $((resident / 2)) ] || fail "only $others of $resident pages of the half not moved were reclaimed"
    [ "$others" -gt $((4 * up)) ] || fail "$up pages of the half moved up were reclaimed, and $others of the other half"
}
