#!/usr/bin/env bash
# Runs `thermo-lab squeeze` in a virtual machine (QEMU, software emulation, Debian's 6.12 kernel) with cgroup
# v2, swap on zram and PSI, where no other program swaps. Prints the tables.
#
#   tests/nbd-squeeze.sh THERMO [ARGUMENTS of squeeze...]        (default: --part pressure --devices 64)
#   tests/nbd-squeeze.sh THERMO --part throughput --nbd-device /dev/nbd0     (needs nbd-client)
#
# SQUEEZE_LIMIT=S   time limit of the machine in seconds (1800)
set -euo pipefail
cd "$(dirname "$0")/.."
thermo=$(realpath "${1:?"THERMO is missing: give the path of thermo"}")
[ -x "$(dirname "$thermo")/thermo-nbd" ] || { echo "SKIP: there is no thermo-nbd in $(dirname "$thermo")" && exit 0; }
shift
[ $# -gt 0 ] || set -- --part pressure --devices 64
for program in qemu-system-x86_64 busybox cpio; do
    command -v "$program" >/dev/null || { echo "SKIP: $program is not installed" && exit 0; }
done
case " $* " in *" --nbd-device "*)
    command -v nbd-client >/dev/null || { echo "SKIP: nbd-client is not installed" && exit 0; }
    export GUEST_PROGRAMS=nbd-client GUEST_MODULES="lzo-rle zram nbd"
    ;;
esac
kernel=$(tests/guest/kernel.sh 6.12)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# The initramfs of tests/guest, with another tests.sh.
tests/guest/initramfs.sh "$thermo" "$kernel" "$work/initramfs"
mkdir "$work/more"
cat >"$work/more/tests.sh" <<GUEST
echo "# guest: \$(uname -sr)"
mkdir /dev/shm
mount -t tmpfs tmpfs /dev/shm
thermo-lab squeeze --results /tmp/squeeze $* || echo "squeeze ended with \$?"
echo "the guest has finished"
GUEST
(cd "$work/more" && echo tests.sh | cpio --quiet --create --format=newc --owner=0:0) | gzip -1 >>"$work/initramfs"
timeout --foreground --kill-after=10 "${SQUEEZE_LIMIT:-1800}" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi -cpu max,-cx16 -smp 2 -m 2048 \
    -nodefaults -no-user-config -display none -no-reboot -kernel "$kernel/vmlinuz" -initrd "$work/initramfs" \
    -append "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off" -serial "file:$work/console" -serial null \
    </dev/null >"$work/qemu.log" 2>&1 || { cat "$work/qemu.log"; echo "FAIL the machine did not finish"; }
tr -d '\r' <"$work/console"
grep -q 'the guest has finished' "$work/console"
