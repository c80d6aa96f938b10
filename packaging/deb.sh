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

# The units of packaging/systemd are for programs in /usr/local and users that exist only while a service
# runs. The packages have users of their own, so that their files keep an owner and a group may use the
# socket.
unit() { # UNIT PACKAGE USER
    sed -e "s|/usr/local/bin/|/usr/bin/|; s|^DynamicUser=yes|User=$3\nGroup=$3|" "packaging/systemd/$1" >"$build/debian/$2"
}
unit thermo-agent.service thermocline.thermo-agent.service thermo
unit thermo-agent.socket thermocline.thermo-agent.socket thermo
unit thermo-lifecycle.service thermocline.thermo-lifecycle.service thermo
unit thermo-upload.service thermo-upload.service thermo
sed -i '/^User=thermo-agent$/d' "$build/debian/thermo-upload.service"
unit thermo-nbd.service thermo-nbd.service thermo-nbd
unit thermo-nbd.socket thermo-nbd.socket thermo-nbd
sed -i 's|^SocketMode=.*|&\nSocketGroup=thermo|' "$build/debian/thermocline.thermo-agent.socket"
sed -i 's|^NoNewPrivileges=yes|&\nAppArmorProfile=-thermo-agent|' "$build/debian/thermocline.thermo-agent.service"
sed -i 's|^NoNewPrivileges=yes|&\nAppArmorProfile=-thermo-nbd|' "$build/debian/thermo-nbd.service"
[ -z "${PACKAGE_VERSION:-}" ] || sed -i "1s|(.*)|($PACKAGE_VERSION)|" "$build/debian/changelog"

(cd "$build" && dpkg-buildpackage --build=binary --unsigned-changes --unsigned-buildinfo --no-pre-clean >"$packages/build.log" 2>&1) || {
    tail -n 30 "$packages/build.log" >&2
    echo "deb: dpkg-buildpackage failed (full output: $packages/build.log)" >&2
    exit 1
}
rm -rf "$build"
ls -sh "$packages"/*.deb
