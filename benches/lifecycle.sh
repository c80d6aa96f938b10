#!/usr/bin/env bash
# The life cycle daemon: 500 applications and 50 state changes a second for a minute (SECONDS_LONG), the time from `set
# cached` to the first bytes freed, and how long an application that comes back in the middle of its reclaim takes to go
# through all of its memory, with and without being brought its working set. Makes zram swap of its own; needs root.
. "$(dirname "$0")/lib.bash"
need_built "$thermo"
long=${SECONDS_LONG:-60}

zram=$(cat /sys/class/zram-control/hot_add)
end_zram() {
    swapoff "/dev/zram$zram" 2>/dev/null || true
    echo "$zram" >/sys/class/zram-control/hot_remove
}
trap 'clean_up; end_zram' EXIT
echo 1G >"/sys/block/zram$zram/disksize"
mkswap "/dev/zram$zram" >/dev/null
swapon -p 30000 "/dev/zram$zram"

keep lifecycle "The life-cycle daemon" python3 benches/lifecycle.py "$thermo" "$work" "$long"
