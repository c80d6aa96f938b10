#!/usr/bin/env bash
# Builds the container image of the agent from the Debian packages: target/image/thermocline-VERSION.oci.tar.
# It has thermo, thermo-upload and the libraries that they need from Debian, and nothing else: no shell, no
# package manager.
# The same packages give the same image, byte for byte. Needs no root where user namespaces are allowed.
# Usage: scripts/image.sh [--check]
#
# --check      build twice, and compare
# PACKAGES     the folder with the package, the output of `make deb` (TARGET_DIR/debian)
# IMAGE        the file (TARGET_DIR/image/thermocline-VERSION.oci.tar)
# SUITE        the release of Debian (bookworm)
set -euo pipefail
cd "$(dirname "$0")/.."

check=${1:-}
case "$check" in '' | --check) ;; *) echo "image: unknown option $check: use --check" >&2; exit 2 ;; esac
target=${TARGET_DIR:-${CARGO_TARGET_DIR:-target}}
packages=${PACKAGES:-$target/debian}
suite=${SUITE:-bookworm}
package=$(find "$packages" -maxdepth 1 -name 'thermocline_*.deb' 2>/dev/null | sort | tail -n 1)
uploader=$(find "$packages" -maxdepth 1 -name 'thermo-upload_*.deb' 2>/dev/null | sort | tail -n 1)
[ -n "$package" ] && [ -n "$uploader" ] || { echo "image: $packages lacks the packages thermocline and thermo-upload: run  make deb  first, or set PACKAGES" >&2; exit 2; }
command -v mmdebstrap >/dev/null || { echo "image: mmdebstrap is not installed: run  scripts/deps.sh machines" >&2; exit 2; }
version=$(dpkg-deb -f "$package" Version)
architecture=$(dpkg-deb -f "$package" Architecture)
image=${IMAGE:-$target/image/thermocline-$version.oci.tar}
# The time of all files.
SOURCE_DATE_EPOCH=$(dpkg-parsechangelog -l packaging/debian/changelog -S Timestamp)
export SOURCE_DATE_EPOCH

# What only the scripts of the package need, which are not run, is left out.
libraries=$(for file in "$package" "$uploader"; do dpkg-deb -f "$file" Depends; done | tr ',' '\n' | sed 's/(.*//; s/ //g' |
    grep -v -e '^systemd' -e '^passwd$' -e '^thermocline$' | sort -u | paste -s -d,)
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' "Release: $suite" | head -n 1)
[ -n "$mirror" ] || { echo "image: apt on this machine has no source for Debian $suite" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
# mmdebstrap works as another user where it is not root.
chmod 755 "$work"

build() { # OUTPUT
    # `extract` unpacks the packages and runs nothing of them.
    mmdebstrap --quiet --variant=extract --include="base-files,$libraries" "$suite" "$work/debian.tar" "$mirror" \
        >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; return 1; }
    dpkg-deb --fsys-tarfile "$package" >"$work/thermocline.tar"
    dpkg-deb --fsys-tarfile "$uploader" >"$work/upload.tar"
    python3 scripts/image.py --architecture "$architecture" --version "$version" "$1" "$work/debian.tar" "$work/thermocline.tar" "$work/upload.tar"
}

build "$work/image.tar"
if [ -n "$check" ]; then
    build "$work/again.tar"
    cmp "$work/image.tar" "$work/again.tar" || { echo "image: two builds differ" >&2; exit 1; }
    echo "image: two builds are equal: sha256 $(sha256sum "$work/image.tar" | cut -d ' ' -f 1)"
fi
mkdir -p "$(dirname "$image")"
cp "$work/image.tar" "$image"
echo "image: $image, $(du -k "$image" | cut -f 1) KiB"
