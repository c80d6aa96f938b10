# What LRU sorting does on kernels that keep generations (MGLRU) and show them nowhere: what is moved down goes first
# when memory is reclaimed, what is moved up stays, whichever of both is the older one.

# How many pages of a region are there or in swap: bit 63 or 62 of a word of the pagemap, in its highest hex digit.
pages_of() { # there|swapped REGION
    local range first bytes digits=4567
    [ "$1" = swapped ] || digits=89abcdef
    range=$(region "$2")
    first=$((${range%-*}))
    bytes=$((${range#*-} - first))
    dd if="/proc/$pid/pagemap" bs=4096 skip=$((first / 4096 * 8 / 4096)) count=$((bytes / 4096 * 8 / 4096)) 2>/dev/null |
        hexdump -v -e '8/1 "%02x" "\n"' | grep -c "^..............[$digits]"
}

lists_of() { # GROUP
    awk '$1 == "active_anon" || $1 == "inactive_anon" { printf " %s %d MiB", $1, $2 / 1048576 }' "$1/memory.stat"
}

active_at_least() { # MIB GROUP
    awk -v mib="$1" '$1 == "active_anon" { enough = $2 >= mib * 1048576 } END { exit !enough }' "$2/memory.stat"
}

hint() { # ACTION REGION
    local range
    range=$(region "$2")
    thermo_says hint "$1" --pid "$pid" --range "$range" >/dev/null || fail "hint $1 ended with $?: $(last_words)"
}

# A quarter at once: where more goes, the kernel finds its inactive list short, and moves pages of the active one there. True
# when so much of a region is gone: one part in so many of what was there.
is_reclaimed() { # PARTS REGION
    echo $((there * 1024)) >"$group/memory.reclaim" 2>/dev/null
    [ "$(pages_of swapped "$2")" -ge $((there / $1)) ]
}

# Starts the two halves in $group, which can be reclaimed on demand.
start_halves() {
    echo +memory >/cgroup/cgroup.subtree_control || skip "this kernel has no memory controller"
    mkdir -p "$group"
    [ -e "$group/memory.reclaim" ] || skip "this kernel cannot reclaim a group on demand"
    # Huge pages cannot be moved up.
    [ ! -e /sys/kernel/mm/transparent_hugepage/enabled ] || without_huge_pages
    # Memory is charged to where its process is when it is touched.
    echo 0 >"$group/cgroup.procs"
    start_workload halves.cfg
    echo 0 >/cgroup/cgroup.procs
}

# Moves one half up and the other down, has a quarter of the latter reclaimed, and looks where it was taken from. How much
# of both there is depends on how far the emulator got in touching them.
reclaims_what_was_moved_down() { # UP DOWN
    local group=/cgroup/sorted up down before there
    start_halves
    before=$(lists_of "$group")
    hint lru_prio "$1"
    # Generations are shown as active when they are young; the two lists are what they are called.
    [ "$(cat /sys/kernel/mm/lru_gen/enabled)" != 0x0000 ] || wait_until "$1 is active" active_at_least $(($(pages_of there "$1") / 512)) "$group"
    note "$1 up:$(lists_of "$group"), before:$before"
    hint lru_deprio "$2"
    note "$2 down:$(lists_of "$group")"
    # More than could be had is told as an error, and some was had.
    there=$(pages_of there "$2")
    [ "$there" -ge 512 ] || fail "only $there pages of $2 were touched"
    # The first time the kernel may find nothing: it goes on from a page or two at each step.
    comes_true is_reclaimed 8 "$2" || true
    up=$(pages_of swapped "$1")
    down=$(pages_of swapped "$2")
    note "swapped pages: $up of what was moved up, $down of what was moved down; lru_gen $(cat /sys/kernel/mm/lru_gen/enabled)"
    [ "$down" -ge $((there / 8)) ] || fail "only $down of $there pages that were moved down were reclaimed"
    [ "$down" -gt $((2 * up)) ] || fail "$up pages of what was moved up were reclaimed, and $down of what was moved down"
}

sorting_decides_what_is_reclaimed() {
    make_swap
    reclaims_what_was_moved_down one two
}

sorting_decides_against_age() {
    make_swap
    reclaims_what_was_moved_down two one
}

# The number of the group, and those of its generations, oldest first.
generations_of_sorted() { awk '$1 == "memcg" { on = $3 == "/sorted"; if (on) print $2 } on && NF > 2 && $1 != "memcg" { print $1 }' /sys/kernel/debug/lru_gen; }

# Ages all that is not touched all the time until nobody's mark is left, and one half is as old as the other.
age_both_halves() {
    local group youngest
    for _ in 1 2; do
        group=$(generations_of_sorted | head -n 1)
        youngest=$(generations_of_sorted | tail -n 1)
        echo "+ $group 0 $youngest 1 1" >/sys/kernel/debug/lru_gen || fail "generation $youngest of group $group cannot be aged"
    done
}

# What is moved up alone: both halves are in the oldest generation without marks, and would go in the order they came in.
moving_up_spares_among_equals() {
    local group=/cgroup/sorted there up others
    grep -qs '^memcg' /sys/kernel/debug/lru_gen || skip "this kernel has no MGLRU, or does not show it"
    [ "$(cat /sys/kernel/mm/lru_gen/enabled)" != 0x0000 ] || skip "MGLRU is switched off"
    make_swap
    start_halves
    age_both_halves
    hint lru_prio two
    there=$(pages_of there one)
    [ "$there" -ge 512 ] || fail "only $there pages of one were touched"
    comes_true is_reclaimed 2 one || true
    up=$(pages_of swapped two)
    others=$(pages_of swapped one)
    note "swapped pages: $up of what was moved up, $others of what was not"
    [ "$others" -ge $((there / 2)) ] || fail "only $others of $there pages that were left alone were reclaimed"
    [ "$others" -gt $((4 * up)) ] || fail "$up pages of what was moved up were reclaimed, and $others of what was not"
}
