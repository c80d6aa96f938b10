#!/usr/bin/env bash
# Boots a machine of machine.sh in QEMU (software emulation) with a second disk, which tells it what to test,
# and prints the result lines: `ok NAME`, `not ok NAME: why`, `# remark`. Fails if a test failed, or the
# machine ended before its tests did.
# Usage: tests/packages/boot.sh MACHINE_FOLDER DISK OUT
#
# OUT                 console, results and the emulator's messages go to OUT.console, OUT.results and OUT.qemu
# MACHINE_TIMEOUT=S   time limit of the machine in seconds (1800)
set -euo pipefail

machine=$1 disk=$2 out=$3
# No cmpxchg16b: see tests/guest/guest.sh. Changes of the disks are not kept. On a loaded machine the kernel
# finds that its timer is too slow, and panics: no_timer_check.
timeout --foreground --kill-after=10 "${MACHINE_TIMEOUT:-1800}" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi \
    -cpu max,-cx16 -smp 2 -m 2048 -nodefaults -no-user-config -display none -no-reboot -snapshot \
    -kernel "$machine/vmlinuz" -initrd "$machine/initrd.img" \
    -append "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=0 panic=-1 mitigations=off no_timer_check" \
    -drive "file=$machine/root.img,if=virtio,format=raw" -drive "file=$disk,if=virtio,format=raw" \
    -chardev "file,id=console,path=$out.console" -serial chardev:console \
    -chardev "file,id=results,path=$out.results" -serial chardev:results \
    </dev/null >"$out.qemu" 2>&1 || true
echo "== ${out##*/}, $SECONDS s"
tr -d '\r' <"$out.results" | grep -aE '^(ok|not ok|#) ' || true
if ! tr -d '\r' <"$out.results" | grep -aqx 'the machine has finished'; then
    echo "not ok machine: it ended before the end of its tests"
    tail -n 20 "$out.console" "$out.results" >&2
    exit 1
fi
! grep -aq '^not ok ' "$out.results"
