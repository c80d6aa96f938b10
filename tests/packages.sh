#!/usr/bin/env bash
# Installs, upgrades, removes and purges the Debian packages in emulated Debian 12 and 13 machines (QEMU,
# software emulation), and checks services, commands, man pages and completions there. Needs root, to make
# the machines.
# Usage: tests/packages.sh [bookworm] [trixie]
#
# TARGET_DIR=FOLDER   the output of cargo, with the build of scripts/small.sh (CARGO_TARGET_DIR, or target)
# OUT=FOLDER          where consoles and results are saved (default: a temporary folder)
# MACHINE_TIMEOUT=S   time limit of a machine in seconds (1800)
set -euo pipefail
cd "$(dirname "$0")/.."

suites=${*:-bookworm trixie}
export TARGET_DIR=${TARGET_DIR:-${CARGO_TARGET_DIR:-target}}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
out=${OUT:-$work/out}
mkdir -p "$out" "$work/test"

build() { # FOLDER [VERSION]
    PACKAGES=$work/packages/$1 PACKAGE_VERSION=${2:-} packaging/deb.sh >/dev/null
    mkdir "$work/test/$1"
    find "$work/packages/$1" -name '*.deb' ! -name '*-dbgsym*' -exec cp {} "$work/test/$1/" \;
}

version=$(dpkg-parsechangelog -l packaging/debian/changelog -S Version)
echo "packages: building versions $version~test1 and $version" >&2
build old "$version~test1"
build new
echo "$version" >"$work/test/new/version"
cp tests/packages/inside.sh "$work/test/"
truncate -s 400M "$work/test.img"
mke2fs -q -t ext4 -L test -d "$work/test" "$work/test.img"

failed=0
for suite in $suites; do
    machine=$(tests/packages/machine.sh "$suite")
    echo "packages: booting Debian $suite; console: $out/$suite.console" >&2
    tests/packages/boot.sh "$machine" "$work/test.img" "$out/$suite" || failed=1
done
[ "$failed" -eq 0 ] && echo "packages: all checks passed in: $suites"
exit "$failed"
