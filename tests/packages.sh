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
    begin=$SECONDS
    echo "packages: booting Debian $suite; console: $out/$suite.console" >&2
    # No cmpxchg16b: see tests/guest/guest.sh. Changes of the disks are not kept. On a loaded machine the
    # kernel finds that its timer is too slow, and panics: no_timer_check.
    timeout --foreground --kill-after=10 "${MACHINE_TIMEOUT:-1800}" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi \
        -cpu max,-cx16 -smp 2 -m 2048 -nodefaults -no-user-config -display none -no-reboot -snapshot \
        -kernel "$machine/vmlinuz" -initrd "$machine/initrd.img" \
        -append "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=0 panic=-1 mitigations=off no_timer_check" \
        -drive "file=$machine/root.img,if=virtio,format=raw" -drive "file=$work/test.img,if=virtio,format=raw" \
        -chardev "file,id=console,path=$out/$suite.console" -serial chardev:console \
        -chardev "file,id=results,path=$out/$suite.results" -serial chardev:results \
        </dev/null >"$out/$suite.qemu" 2>&1 || true
    echo "== Debian $suite, $((SECONDS - begin)) s"
    tr -d '\r' <"$out/$suite.results" | grep -aE '^(ok|not ok|#) ' || true
    if ! tr -d '\r' <"$out/$suite.results" | grep -aqx 'the machine has finished'; then
        echo "not ok machine: it ended before the end of its tests"
        tail -n 20 "$out/$suite.console" "$out/$suite.results" >&2
        failed=1
    fi
    ! grep -aq '^not ok ' "$out/$suite.results" || failed=1
done
[ "$failed" -eq 0 ] && echo "packages: all checks passed in: $suites"
exit "$failed"
