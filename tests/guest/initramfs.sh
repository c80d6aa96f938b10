#!/usr/bin/env bash
# Builds the initramfs of a guest: busybox, thermo and thermo-lab with their libraries, the modules of one
# kernel, and the tests. Usage: tests/guest/initramfs.sh THERMO KERNEL_FOLDER OUTPUT
#
# The folder of THERMO has to contain thermo-lab. If it contains thermo-nbd, that is included too.
#
# GUEST_PROGRAMS="NAME..."  further programs of this machine to include; missing ones are left out
# GUEST_FILES=FOLDER        further files, copied to the root
set -euo pipefail

thermo=$(realpath "${1:?"THERMO is missing: give the path of thermo"}")
kernel=$(realpath "${2:?"KERNEL_FOLDER is missing: give what kernel.sh prints"}")
output=$(realpath -m "${3:?"OUTPUT is missing: give the path of the initramfs"}")
cd "$(dirname "$0")/../.."

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

copy_with_libraries() { # PROGRAM NAME
    local library
    cp -L "$1" "$root/bin/$2"
    strip "$root/bin/$2" 2>/dev/null || true
    # ldd prints "name => /path (address)", and for the loader "/path (address)".
    ldd "$1" | awk '/=> \// { print $3 } $1 ~ /^\// { print $1 }' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
}

mkdir -p "$root"/{bin,dev,proc,sys,tmp,modules,cgroup,out}
cp "$(command -v busybox)" "$root/bin/busybox"
commands=$(dirname "$thermo")
[ -x "$commands/thermo-lab" ] || { echo "initramfs: there is no thermo-lab in $commands, which the tests need: run  make build" >&2; exit 2; }
copy_with_libraries "$thermo" thermo
for command in thermo-lab thermo-nbd; do
    [ ! -x "$commands/$command" ] || copy_with_libraries "$commands/$command" "$command"
done
# busybox runs its own setpriv by that name, which cannot drop capabilities.
copy_with_libraries "$(command -v setpriv)" setpriv-util-linux
for program in ${GUEST_PROGRAMS:-}; do
    path=$(command -v "$program") && copy_with_libraries "$path" "$program"
done
[ -z "${GUEST_FILES:-}" ] || cp -a "$GUEST_FILES/." "$root/"
# The kernel of idle-kernel.sh has no modules.
find "$kernel/modules" -name '*.ko' -exec cp {} "$root/modules/" \;
cp -r workloads schemes "$root/"
cp tests/guest/inside/* "$root/"
chmod +x "$root/init"
# mktemp creates a folder for its owner only, but the guest's root must be readable by all.
chmod 755 "$root"
chmod 1777 "$root/tmp"
(cd "$root" && find . | cpio --quiet --create --format=newc --owner=0:0) | gzip -1 >"$output"
