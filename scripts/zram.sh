# Helpers for a temporary compressed swap device. Source it. `zram` is the path of the device while it exists.
# shellcheck source=scripts/leftovers.sh
. "$(dirname "${BASH_SOURCE[0]}")/leftovers.sh"

make_zram() { # SIZE
    [ -e /sys/class/zram-control ] || modprobe zram 2>/dev/null || true
    [ -e /sys/class/zram-control/hot_add ] || return 1
    local number
    # Reading this file creates a device.
    number=$(cat /sys/class/zram-control/hot_add) || return 1
    zram=/dev/zram$number
    note_zram
    echo "$1" >"/sys/block/zram$number/disksize"
    mkswap "$zram" >/dev/null
    swapon --priority 32767 "$zram"
}

# Notes the device, in case the script is killed.
note_zram() {
    local back="swapoff $zram; echo ${zram##/dev/zram} > /sys/class/zram-control/hot_remove"
    zram_note=$(note_leftover zram-swap "swap on $zram: \`$back\` removes it")
}

remove_zram() {
    [ -n "${zram:-}" ] || return 0
    swapoff "$zram" 2>/dev/null || true
    # Keep the note if the device could not be removed.
    echo "${zram##/dev/zram}" >/sys/class/zram-control/hot_remove && rm -f "$zram_note"
    zram=
}

# Memory that the paged-out data uses, in KiB.
zram_kib() { awk '{ print int($3 / 1024) }' "/sys/block/${zram##*/}/mm_stat"; }
