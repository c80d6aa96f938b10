#!/usr/bin/env bash
# Tests disks of `thermo-nbd --vhost-user` in a virtual machine (QEMU, software emulation, Debian's 6.12
# kernel): raw data and ext4 are written, flushed and read back; discards; a read-only disk; memory is
# squeezed all the time; the server is killed during writes and restarted. A second server in the machine
# serves the kernel's NBD client with ext4. Each check prints one line: PASS, FAIL or SKIP. Exit code 1: a
# check failed.
#
#   tests/vhost-user.sh [THERMO_NBD]        (default: target/release/thermo-nbd, else target/debug/thermo-nbd)
#
# Debian packages: qemu-system-x86 busybox-static cpio e2fsprogs, and those of tests/guest/kernel.sh.
# nbd-client comes from this machine, or from the files that tests/nbd-suites.sh has downloaded.
set -uo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/built.sh
. scripts/built.sh
find_built thermo-nbd "${1:-}"
thermo_nbd=$built
need_programs qemu-system-x86_64 busybox cpio mkfs.ext4 e2fsck debugfs
kernel=$(GUEST_MODULES="crc32c_generic virtio_pci virtio_blk ext4 nbd" tests/guest/kernel.sh 6.12) || { echo "SKIP: the kernel cannot be downloaded" && exit 0; }

limit=600
failed=0
work=$(mktemp -d)
server=
machine=
cleanup() {
    [ -z "$machine" ] || kill "$machine" 2>/dev/null
    [ -z "$server" ] || kill "$server" 2>/dev/null
    wait 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

result() { # NAME (of the check; its result is the status of the previous command)
    local status=$?
    if [ "$status" -eq 0 ]; then echo "PASS $1"; else echo "FAIL $1" && failed=1; fi
}
wait_for() { # CONDITION COMMAND...
    local condition=$1 end=$((SECONDS + limit))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || { echo "FAIL timed out after $limit s waiting until $condition" && tail -n 30 "$work/console" && exit 1; }
        sleep 0.1
    done
}
start() {
    "$thermo_nbd" --vhost-user "$work/0=disk" --vhost-user "$work/1=raw" --vhost-user "$work/2=fixed" --control "$work/c" \
        --export "disk=$work/disk" --export "raw=$work/raw" --export "fixed=$work/fixed,ro" --budget 4M 2>>"$work/server.log" &
    server=$!
    wait_for "the server responds" "$thermo_nbd" status --control "$work/c"
}

root=$work/root
mkdir -p "$root"/{bin,dev,proc,sys,mnt,modules}
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$kernel"/modules/*.ko "$root/modules/"
suites=${XDG_CACHE_HOME:-$HOME/.cache}/thermocline/suites/root
copy_with_libraries() { # PROGRAM NAME
    local library
    cp -L "$1" "$root/bin/$2" && strip "$root/bin/$2"
    LD_LIBRARY_PATH=$suites/usr/lib/x86_64-linux-gnu:$suites/lib/x86_64-linux-gnu ldd "$1" | awk '/=> \// { print $3 } $1 ~ /^\// { print $1 }' | while read -r library; do
        mkdir -p "$root/lib64"
        cp -L "$library" "$root/lib64/"
    done
}
nbd_client=$(command -v nbd-client || ls "$suites/sbin/nbd-client" 2>/dev/null)
if [ -n "$nbd_client" ]; then
    copy_with_libraries "$thermo_nbd" thermo-nbd
    copy_with_libraries "$nbd_client" nbd-client
    for program in mkfs.ext4 e2fsck; do copy_with_libraries "$(command -v "$program")" "$program"; done
fi
cat >"$root/init" <<'GUEST'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin LD_LIBRARY_PATH=/lib64
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs devtmpfs /dev
for module in /modules/*.ko; do insmod "$module"; done
result() { if [ $? -eq 0 ]; then echo "PASS in the guest: $1"; else echo "FAIL in the guest: $1"; fi; }
sum() { md5sum | cut -c 1-32; }
fresh() { sync; echo 3 >/proc/sys/vm/drop_caches; }
for _ in $(seq 600); do [ -b /dev/vdc ] && break; sleep 0.1; done

[ "$(cat /sys/block/vda/serial)" = disk ] && [ "$(cat /sys/block/vda/size)" -eq 131072 ]; result "the disk's name and size"
[ "$(ls /sys/block/vda/mq | wc -l)" -eq 2 ]; result "two queues"
[ "$(cat /sys/block/vdb/queue/discard_max_bytes)" -gt 0 ] && [ "$(cat /sys/block/vdb/queue/write_zeroes_max_bytes)" -gt 0 ]; result "discard and write zeroes are offered"

dd if=/dev/urandom of=/tmp1 bs=1M count=16 2>/dev/null
dd if=/tmp1 of=/dev/vdb bs=1M conv=fsync 2>/dev/null; fresh
[ "$(dd if=/dev/vdb bs=1M count=16 2>/dev/null | sum)" = "$(sum </tmp1)" ]; result "16 MiB of raw data read back"
echo "raw $(sum </tmp1)"
blkdiscard -o 4194304 -l 4194304 /dev/vdb && fresh
[ "$(dd if=/dev/vdb bs=1M skip=4 count=4 2>/dev/null | tr -d '\0' | wc -c)" -eq 0 ]; result "discarded data reads as zeros"
[ "$(dd if=/dev/vdb bs=1M count=4 2>/dev/null | sum)" = "$(dd if=/tmp1 bs=1M count=4 2>/dev/null | sum)" ]; result "data next to the discarded range is unchanged"

[ "$(cat /sys/block/vdc/ro)" -eq 1 ] && ! dd if=/dev/zero of=/dev/vdc bs=4k count=1 conv=fsync 2>/dev/null; result "a write to the read-only disk fails"
[ "$(dd if=/dev/vdc bs=1M 2>/dev/null | sum)" = "$(sed 's/.*fixed=\([0-9a-f]*\).*/\1/' /proc/cmdline)" ]; result "the read-only disk has the data of the host"

mount -t ext4 /dev/vda /mnt && cp /tmp1 /mnt/file && umount /mnt && fresh && mount -t ext4 /dev/vda /mnt; result "ext4 is mounted, written, unmounted, mounted"
[ "$(sum </mnt/file)" = "$(sum </tmp1)" ]; result "a file on ext4 read back"
rm /mnt/file; sync
fstrim /mnt; result "fstrim"

# The host kills the server during this loop. The guest waits for the next server.
echo "now writing"
number=0
while [ "$number" -lt 12 ]; do
    dd if=/tmp1 of="/mnt/file$number" bs=1M count=4 conv=fsync 2>/dev/null || echo "FAIL in the guest: a write while the server was down"
    number=$((number + 1))
    echo "written $number"
done
umount /mnt && fresh && mount -t ext4 /dev/vda /mnt
for file in /mnt/file*; do sum <"$file"; done | sort -u >/sums
[ "$(cat /sums)" = "$(dd if=/tmp1 bs=1M count=4 2>/dev/null | sum)" ]; result "twelve files written across a kill -9 of the server read back"
umount /mnt

if [ -x /bin/thermo-nbd ]; then
    truncate -s 64M /nbd.img
    thermo-nbd --unix /nbd.sock --export disk=/nbd.img --budget 2M --control /nbd.ctl 2>/nbd.log &
    for _ in $(seq 600); do [ -S /nbd.ctl ] && break; sleep 0.1; done
    nbd-client -unix /nbd.sock /dev/nbd0 -N disk -C 2 >/nbd-client.log 2>&1; result "the kernel's NBD client attaches, with two connections"
    mkfs.ext4 -q /dev/nbd0 && mount -t ext4 /dev/nbd0 /mnt && cp /tmp1 /mnt/file && umount /mnt && e2fsck -fn /dev/nbd0 >/e2fsck.log 2>&1; result "ext4 on it is made, written, unmounted and checked"
    fresh; mount -t ext4 /dev/nbd0 /mnt && [ "$(sum </mnt/file)" = "$(sum </tmp1)" ]; result "the file has its content after a remount"
    rm /mnt/file; sync; fstrim /mnt && umount /mnt && nbd-client -d /dev/nbd0 >>/nbd-client.log 2>&1; result "the NBD device is trimmed and detached"
    thermo-nbd status --control /nbd.ctl
    cat /nbd.log /nbd-client.log
else
    echo "SKIP in the guest: nbd-client is not installed, so the kernel's NBD client is not tested"
fi
echo "the guest has finished"
poweroff -f
GUEST
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet --create --format=newc --owner=0:0) | gzip -1 >"$work/initramfs"

truncate -s 64M "$work/disk" "$work/raw"
mkfs.ext4 -q "$work/disk"
head -c 8M /dev/urandom >"$work/fixed"
fixed=$(md5sum <"$work/fixed" | cut -c 1-32)
: >"$work/console"
start
disks=()
for number in 0 1 2; do
    disks+=(-chardev "socket,id=c$number,path=$work/$number,reconnect=1" -device "vhost-user-blk-pci,chardev=c$number,num-queues=2")
done
# The CPU has no cmpxchg16b: QEMU 7.2 sometimes sets wrong flags after this instruction, which crashes the
# kernel.
timeout --kill-after=10 "$limit" qemu-system-x86_64 -machine q35,memory-backend=mem -accel tcg,thread=multi -cpu max,-cx16 -smp 2 -m 1024 \
    -object memory-backend-memfd,id=mem,size=1G,share=on -nodefaults -no-user-config -display none -no-reboot \
    -kernel "$kernel/vmlinuz" -initrd "$work/initramfs" -append "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off fixed=$fixed" \
    "${disks[@]}" -serial "file:$work/console" </dev/null >"$work/qemu.log" 2>&1 &
machine=$!

ended() { ! kill -0 "$machine" 2>/dev/null; }
seen() { ended || grep -q "^$1" "$work/console"; }
# Squeezes memory five times a second until the guest prints LINE.
squeeze_until() { # LINE
    until seen "$1"; do
        "$thermo_nbd" squeeze --control "$work/c" >/dev/null
        sleep 0.2
    done
}
status() { # PYTHON
    "$thermo_nbd" status --control "$work/c" --json | python3 -c "import json,sys; s=json.load(sys.stdin); sys.exit(not ($1))"
}
squeeze_until "now writing"
status 's["vhost_clients"] == 3 and s["peak_bytes"] <= s["budget_bytes"] and s["written_bytes"] >= 32 << 20 and s["connection_errors"] == 0'
result "three disks, buffers within the budget, no connection errors"
squeeze_until "written 3"
kill -KILL "$server"
wait "$server" 2>/dev/null
start
squeeze_until "the guest has finished"
wait "$machine"
machine=
tr -d '\r' <"$work/console" >"$work/lines"
grep -aE '^(PASS|FAIL|SKIP) ' "$work/lines"
grep -aqE '^FAIL ' "$work/lines" && failed=1
grep -aqx 'the guest has finished' "$work/lines"
result "the guest finished" || true
[ "$failed" -eq 0 ] || { tail -n 20 "$work/lines" "$work/qemu.log" "$work/server.log"; }

wait_for "the disconnect of the machine" status 's["vhost_clients"] == 0'
status 's["peak_bytes"] <= s["budget_bytes"]'
result "buffers within the budget to the end"
kill -TERM "$server" && wait "$server"
result "the server ends at SIGTERM"
server=
[ ! -e "$work/0" ] && [ ! -e "$work/1" ] && [ ! -e "$work/2" ]
result "the server removed its sockets"
e2fsck -fn "$work/disk" >"$work/e2fsck" 2>&1
result "e2fsck finds no error"
debugfs -R "cat /file7" "$work/disk" 2>/dev/null | cmp -s - <(head -c 4M "$work/raw")
result "the host reads the file that the guest wrote"
exit $failed
