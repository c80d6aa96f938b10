# What LRU sorting does on kernels that keep generations (MGLRU) and show them nowhere: what is moved down goes first
# when memory is reclaimed, what is moved up stays, whichever of both is the older one.

# Where a region lies: 0xBEGIN-0xEND.
region() { # NAME
    grep -o " $1 0x[0-9a-f]*-0x[0-9a-f]*" /tmp/ready | sed "s/ $1 //"
}

# How many pages of a region are in swap: bit 62 of a word, and not bit 63, is the fourth of its highest hex digit.
swapped_pages_of() { # REGION
    local range first bytes
    range=$(region "$1")
    first=$((${range%-*}))
    bytes=$((${range#*-} - first))
    dd if="/proc/$pid/pagemap" bs=4096 skip=$((first / 4096 * 8 / 4096)) count=$((bytes / 4096 * 8 / 4096)) 2>/dev/null |
        hexdump -v -e '8/1 "%02x" "\n"' | grep -c '^..............[4567]'
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
    thermo_says hint "$1" --pid "$pid" --range "$range" || fail "hint $1 ended with $?: $(last_words)"
}

# Moves one half up and the other down, has a fifth of all reclaimed, and looks where it was taken from.
reclaims_what_was_moved_down() { # UP DOWN
    local group=/cgroup/sorted up down before
    echo +memory >/cgroup/cgroup.subtree_control || skip "this kernel has no memory controller"
    mkdir -p "$group"
    [ -e "$group/memory.reclaim" ] || skip "this kernel cannot reclaim a group on demand"
    # Huge pages cannot be moved up.
    [ ! -e /sys/kernel/mm/transparent_hugepage/enabled ] || echo never >/sys/kernel/mm/transparent_hugepage/enabled
    # Memory is charged to where its process is when it is touched.
    echo 0 >"$group/cgroup.procs"
    start_workload halves.cfg
    echo 0 >/cgroup/cgroup.procs
    [ ! -e /sys/kernel/mm/transparent_hugepage/enabled ] || echo always >/sys/kernel/mm/transparent_hugepage/enabled
    before=$(lists_of "$group")
    hint lru_prio "$1"
    # Generations are shown as active when they are young; the two lists are what they are called.
    [ "$(cat /sys/kernel/mm/lru_gen/enabled)" != 0x0000 ] || wait_until "$1 is active" active_at_least 24 "$group"
    note "$1 up:$(lists_of "$group"), before:$before"
    hint lru_deprio "$2"
    note "$2 down:$(lists_of "$group")"
    # More than could be had is told as an error, and some was had.
    echo 16M >"$group/memory.reclaim" 2>/dev/null
    up=$(swapped_pages_of "$1")
    down=$(swapped_pages_of "$2")
    note "swapped pages: $up of what was moved up, $down of what was moved down; lru_gen $(cat /sys/kernel/mm/lru_gen/enabled)"
    [ "$down" -ge 1024 ] || fail "only $down pages of what was moved down were reclaimed"
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
