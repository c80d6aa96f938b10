#!/usr/bin/env bash
# Makes the root file system of a small Debian machine with systemd, and prints the path of its folder:
# root.img (ext4), vmlinuz, initrd.img and release. It is kept for the next run. Needs root.
# Usage: tests/packages/machine.sh bookworm|trixie [NAME PACKAGE...]
#
# NAME PACKAGE...   a machine of its own with further packages
#
# At its start the machine mounts the disk that is called `test`, and runs inside.sh of it.
set -euo pipefail

suite=${1:?"the suite is missing: use bookworm or trixie"}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/thermocline/machines
machine=$cache/$suite${2:+-$2}
if [ -e "$machine/release" ]; then
    echo "$machine"
    exit
fi
[ "$(id -u)" -eq 0 ] || { echo "machine: making a root file system needs root" >&2; exit 2; }

# Libraries that the packages depend on are installed before, because the machine has no network.
case "$suite" in
    bookworm) libelf=libelf1 ;;
    trixie) libelf=libelf1t64 ;;
    *) echo "machine: unknown suite $suite: use bookworm or trixie" >&2; exit 2 ;;
esac
include=systemd-sysv,dbus,linux-image-cloud-amd64,initramfs-tools,apparmor,man-db,bash-completion,zsh,fish,procps,passwd,$libelf,zlib1g,python3-minimal,gcc,libc6-dev,pkg-config
[ $# -le 2 ] || include+=$(printf ',%s' "${@:3}")

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Release: bookworm' | head -n 1)
[ -n "$mirror" ] || { echo "machine: apt on this machine has no source for Debian bookworm" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "machine: making Debian $suite, which takes minutes once" >&2
mmdebstrap --mode=root --variant=apt --include="$include" --dpkgopt='force-unsafe-io' "$suite" "$work/root" "$mirror" \
    >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }

cat >"$work/root/etc/systemd/system/package-test.service" <<'UNIT'
[Unit]
Description=Test of packages
After=multi-user.target

[Service]
Type=idle
StandardOutput=journal+console
ExecStart=/bin/sh -c 'mount -o ro LABEL=test /mnt && cp -r /mnt /tmp/test && umount /mnt && cd /tmp/test && exec bash inside.sh'
ExecStopPost=/bin/systemctl poweroff --no-block
UNIT
mkdir -p "$work/root/etc/systemd/system/graphical.target.wants"
ln -s ../package-test.service "$work/root/etc/systemd/system/graphical.target.wants/"
echo "LABEL=root / ext4 defaults 0 1" >"$work/root/etc/fstab"
echo machine >"$work/root/etc/hostname"
# man-db would index all pages of the machine at each installation, which takes minutes in emulation.
rm -f "$work/root/var/lib/man-db/auto-update"
mkdir "$work/machine"
cp "$work"/root/boot/vmlinuz-* "$work/machine/vmlinuz"
cp "$work"/root/boot/initrd.img-* "$work/machine/initrd.img"
basename "$work"/root/lib/modules/* >"$work/release"
truncate -s 3G "$work/machine/root.img"
mke2fs -q -t ext4 -L root -d "$work/root" "$work/machine/root.img"
mkdir -p "$cache"
rm -rf "$machine"
cp -r --sparse=always "$work/machine" "$machine"
mv "$work/release" "$machine/release"
echo "$machine"
