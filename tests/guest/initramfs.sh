#!/usr/bin/env bash
# Builds what the guest boots into, all of it in memory: busybox, thermo and thermo-lab with their libraries, the
# modules of one kernel, and the tests. Usage: tests/guest/initramfs.sh THERMO KERNEL_FOLDER OUTPUT
#
# THERMO has thermo-lab beside it; thermo-nbd is taken along when it is there, too.
#
# GUEST_PROGRAMS="NAME..."  programs of this machine to take along; one that is not here is left out
# GUEST_FILES=FOLDER        what lies in it becomes part of the root
set -euo pipefail

thermo=$(realpath "${1:?"which thermo?"}")
kernel=$(realpath "${2:?"which folder of a kernel?"}")
output=$(realpath -m "${3:?"where to?"}")
cd "$(dirname "$0")/../.."

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

copy_with_libraries() { # PROGRAM NAME
    local library
    cp -L "$1" "$root/bin/$2"
    strip "$root/bin/$2" 2>/dev/null || true
    # "name => /path (address)", and the loader as "/path (address)".
    ldd "$1" | awk '/=> \// { print $3 } $1 ~ /^\// { print $1 }' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
}

mkdir -p "$root"/{bin,dev,proc,sys,tmp,modules,cgroup,out}
cp "$(command -v busybox)" "$root/bin/busybox"
beside=$(dirname "$thermo")
[ -x "$beside/thermo-lab" ] || { echo "initramfs: the tests need thermo-lab, and there is none in $beside" >&2; exit 2; }
copy_with_libraries "$thermo" thermo
for command in thermo-lab thermo-nbd; do
    [ ! -x "$beside/$command" ] || copy_with_libraries "$beside/$command" "$command"
done
for program in ${GUEST_PROGRAMS:-}; do
    path=$(command -v "$program") && copy_with_libraries "$path" "$program"
done
[ -z "${GUEST_FILES:-}" ] || cp -a "$GUEST_FILES/." "$root/"
# A kernel that was built for the guest has none.
find "$kernel/modules" -name '*.ko' -exec cp {} "$root/modules/" \;
cp -r workloads schemes "$root/"
cp tests/guest/inside/* "$root/"
chmod +x "$root/init"
# mktemp's folder is its owner's alone, and it becomes the guest's root.
chmod 755 "$root"
chmod 1777 "$root/tmp"
(cd "$root" && find . | cpio --quiet --create --format=newc --owner=0:0) | gzip -1 >"$output"
