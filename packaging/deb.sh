#!/usr/bin/env bash
# Builds the Debian packages in target/debian from the output of scripts/small.sh. Needs no root.
# Usage: packaging/deb.sh
#
# TARGET_DIR       the output of cargo (CARGO_TARGET_DIR, or target)
# PACKAGES         folder for the packages (TARGET_DIR/debian)
# PACKAGE_VERSION  another version than that of packaging/debian/changelog, for tests of upgrades
set -euo pipefail
cd "$(dirname "$0")/.."

source=$PWD
TARGET_DIR=$(realpath "${TARGET_DIR:-${CARGO_TARGET_DIR:-target}}")
export TARGET_DIR PROFILE=small
packages=${PACKAGES:-$TARGET_DIR/debian}
rm -rf "$packages"
build=$packages/build
mkdir -p "$build"
cp -r packaging/debian "$build/debian"
ln -s "$source" "$build/source"

packaging/debian-units.sh "$build/debian"
[ -z "${PACKAGE_VERSION:-}" ] || sed -i "1s|(.*)|($PACKAGE_VERSION)|" "$build/debian/changelog"

(cd "$build" && dpkg-buildpackage --build=binary --unsigned-changes --unsigned-buildinfo --no-pre-clean >"$packages/build.log" 2>&1) || {
    tail -n 30 "$packages/build.log" >&2
    echo "deb: dpkg-buildpackage failed (full output: $packages/build.log)" >&2
    exit 1
}
rm -rf "$build"
ls -sh "$packages"/*.deb
