# A compressed swap device of our own: what is paged out stays in memory, smaller. To be sourced; `zram` names the
# device while it is there.

make_zram() { # SIZE
    [ -e /sys/class/zram-control ] || modprobe zram 2>/dev/null || true
    [ -e /sys/class/zram-control/hot_add ] || return 1
    local number
    # Reading this file makes a device.
    number=$(cat /sys/class/zram-control/hot_add) || return 1
    zram=/dev/zram$number
    note_zram
    echo "$1" >"/sys/block/zram$number/disksize"
    mkswap "$zram" >/dev/null
    swapon --priority 32767 "$zram"
}

# What a kill -9 of this script leaves, for `thermo doctor --leftovers`: see crates/kernel/src/leftovers.rs.
note_zram() {
    local folder=/run/thermocline since back
    zram_note=$folder/zram-swap-$$-script
    since=$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20)
    back="swapoff $zram; echo ${zram##/dev/zram} > /sys/class/zram-control/hot_remove"
    mkdir -p "$folder"
    printf 'thermo-leftovers 1 zram-swap %s %s\n- - swap on %s: `%s` gives it back\n' $$ "$since" "$zram" "$back" \
        >"$zram_note.new"
    mv "$zram_note.new" "$zram_note"
}

remove_zram() {
    [ -n "${zram:-}" ] || return 0
    swapoff "$zram" 2>/dev/null || true
    # What could not be given back stays noted.
    echo "${zram##/dev/zram}" >/sys/class/zram-control/hot_remove && rm -f "$zram_note"
    zram=
}

# KiB of memory that what was paged out still takes.
zram_kib() { awk '{ print int($3 / 1024) }' "/sys/block/${zram##*/}/mm_stat"; }
