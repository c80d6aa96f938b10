# Helpers for a temporary compressed swap device. Source it. `zram` is the path of the device while it exists.
# shellcheck source=scripts/leftovers.sh
. "$(dirname "${BASH_SOURCE[0]}")/leftovers.sh"

make_zram() { # SIZE
    [ -e /sys/class/zram-control ] || modprobe zram 2>/dev/null || true
    [ -e /sys/class/zram-control/hot_add ] || return 1
    local number=0
    # The kernel takes the lowest free number. The script may be killed as soon as the device exists.
    while [ -e "/sys/block/zram$number" ]; do number=$((number + 1)); done
    zram=/dev/zram$number
    note_unused_zram
    # Reading this file creates a device.
    if ! number=$(cat /sys/class/zram-control/hot_add); then
        rm -f "$zram_note"
        return 1
    fi
    zram=/dev/zram$number
    note_zram
    echo "$1" >"/sys/block/zram$number/disksize"
    mkswap "$zram" >/dev/null
    swapon --priority 32767 "$zram"
}

# Notes a device that is about to be added, in case the script is killed.
note_unused_zram() {
    zram_note=$(note_leftover zram-swap "$zram, not in use: \`$(remove_command)\` removes it" "$zram")
}

# Notes a device that is there.
note_zram() {
    zram_note=$(note_leftover zram-swap "swap on $zram: \`swapoff $zram; $(remove_command)\` removes it" "$zram")
}

remove_command() { echo "echo ${zram##*zram} > /sys/class/zram-control/hot_remove"; }

remove_zram() {
    [ -n "${zram:-}" ] || return 0
    swapoff "$zram" 2>/dev/null || true
    # Keep the note if the device could not be removed.
    echo "${zram##/dev/zram}" >/sys/class/zram-control/hot_remove && rm -f "$zram_note"
    zram=
}

# Memory that the paged-out data uses, in KiB.
zram_kib() { awk '{ print int($3 / 1024) }' "/sys/block/${zram##*/}/mm_stat"; }
