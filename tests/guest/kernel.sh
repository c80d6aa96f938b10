#!/usr/bin/env bash
# Unpacks one of Debian's cloud kernels and prints the path of its folder: vmlinuz, release (the output of
# `uname -r`) and modules/ (zram and its dependencies, numbered in load order).
# Usage: tests/guest/kernel.sh 6.1|6.12
#
# GUEST_MODULES="NAME..."  modules instead of zram, with their dependencies; each set has its own folder
#
# apt downloads the package from this machine's mirror, with separate state and sources: the machine's apt
# sources are not changed, and nothing is installed.
set -euo pipefail

version=${1:?"the kernel version is missing: use 6.1 or 6.12"}
case "$version" in
    6.1) suite=bookworm ;;
    6.12) suite=bookworm-backports ;;
    *) echo "guest: unknown kernel $version: use 6.1 or 6.12" >&2; exit 2 ;;
esac

cache=${XDG_CACHE_HOME:-$HOME/.cache}/thermocline
kernel=$cache/kernels/$version${GUEST_MODULES:+-${GUEST_MODULES// /-}}
if [ -e "$kernel/release" ]; then
    echo "$kernel"
    exit
fi

apt=$cache/apt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Release: bookworm' | head -n 1
}

private_apt() { # apt-get|apt-cache ARGUMENTS...
    local program=$1
    shift
    "$program" -q -o "Dir::State=$apt/state" -o "Dir::Cache=$apt/cache" -o Dir::State::status=/dev/null \
        -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        -o APT::Sandbox::User=root "$@"
}

list_packages() {
    local from suite
    from=$(mirror)
    if [ -z "$from" ]; then
        echo "guest: cannot download kernels: apt on this machine has no source for Debian bookworm" >&2
        exit 1
    fi
    mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
    for suite in bookworm bookworm-backports; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $from $suite main"
    done >"$apt/sources.list"
    private_apt apt-get update >"$work/update.log" 2>&1 || { tail -n 5 "$work/update.log" >&2; exit 1; }
}

# The metapackage linux-image-cloud-amd64 depends on the package of the current kernel.
package_of() { # SUITE
    private_apt apt-cache show "linux-image-cloud-amd64/$1" | sed -n 's/^Depends: *\(linux-image-[^ ,]*\).*/\1/p' | head -n 1
}

unpack() { # PACKAGE
    echo "guest: fetching $1" >&2
    (cd "$work" && private_apt apt-get download "$1" >download.log 2>&1) || { tail -n 5 "$work/download.log" >&2; exit 1; }
    dpkg-deb --extract "$work"/linux-image-*.deb "$work/package"
}

# The guest loads modules by path and needs no module index: 00-zsmalloc.ko, 01-zram.ko ...
collect_modules() { # RELEASE
    local number=0 name path
    depmod -b "$work/package" "$1"
    mkdir "$work/kernel/modules"
    # Before 6.12 zram compresses through the crypto API, which loads its modules by name at run time.
    for name in ${GUEST_MODULES:-lzo-rle zram}; do
        modprobe -d "$work/package" -S "$1" --show-depends "$name" 2>/dev/null || true
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$work/order"
    while read -r path; do
        name=$(printf '%02d-%s' "$number" "$(basename "$path")")
        case "$path" in
            *.xz) xz -dc "$path" >"$work/kernel/modules/${name%.xz}" ;;
            *) cp "$path" "$work/kernel/modules/$name" ;;
        esac
        number=$((number + 1))
    done <"$work/order"
}

list_packages
package=$(package_of "$suite")
if [ -z "$package" ]; then
    echo "guest: Debian's $suite has no package linux-image-cloud-amd64" >&2
    exit 1
fi
unpack "$package"
release=$(basename "$work"/package/lib/modules/*)
mkdir "$work/kernel"
cp "$work/package/boot/vmlinuz-$release" "$work/kernel/vmlinuz"
collect_modules "$release"
echo "$release" >"$work/kernel/release"
mkdir -p "$(dirname "$kernel")"
rm -rf "$kernel"
mv "$work/kernel" "$kernel"
echo "$kernel"
