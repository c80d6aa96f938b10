#!/usr/bin/env bash
# The life-cycle daemon: 500 applications with 50 state changes per second for a minute (SECONDS_LONG), the
# time from `set cached` to the first freed bytes, and the time that an application needs to touch its working
# set when it resumes without, during and after reclaim, with and without prefetch. Creates its own zram swap.
# Needs root.
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
