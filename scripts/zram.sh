# A compressed swap device of our own: what is paged out stays in memory, smaller. To be sourced; `zram` names the
# device while it is there.

make_zram() { # SIZE
    [ -e /sys/class/zram-control ] || modprobe zram 2>/dev/null || true
    [ -e /sys/class/zram-control/hot_add ] || return 1
    local number
    # Reading this file makes a device.
    number=$(cat /sys/class/zram-control/hot_add) || return 1
    zram=/dev/zram$number
    echo "$1" >"/sys/block/zram$number/disksize"
    mkswap "$zram" >/dev/null
    swapon --priority 32767 "$zram"
}

remove_zram() {
    [ -n "${zram:-}" ] || return 0
    swapoff "$zram" 2>/dev/null || true
    echo "${zram##/dev/zram}" >/sys/class/zram-control/hot_remove
    zram=
}

# KiB of memory that what was paged out still takes.
zram_kib() { awk '{ print int($3 / 1024) }' "/sys/block/${zram##*/}/mm_stat"; }
