#!/usr/bin/env bash
# Boots Debian's kernels in QEMU and runs the tests of inside/ there with the real binary: other kernels than this
# machine's, with swap, control groups and in-kernel DAMON of the guest's own. Software emulation: no /dev/kvm.
# Usage: tests/guest/guest.sh [6.1|6.12|idle|all] [TEST...]
#
# all                 both of Debian's; idle is the kernel of idle-kernel.sh, which takes minutes to build once
# TEST                functions of inside/*.sh; without any all that judge are run (those of contest.sh take minutes
#                     and only tell)
# THERMO=PROGRAM      the binary to test, with thermo-lab beside it (else a release build is made)
# GUEST_TIMEOUT=S     after so many seconds a guest is ended (900)
# GUEST_CLOCK=instructions  time in a guest is the number of its instructions, 2 ns each, however busy this machine is, and
#                     what sleeps takes none of this machine's: for comparing, not for what waits for time to pass
# GUEST_APPEND=WORDS  more words for the kernel's command line
# GUEST_PROGRAMS, GUEST_FILES, GUEST_MODULES  what to take along besides: see initramfs.sh and kernel.sh
# GUEST_OUT=FOLDER    where what the guests leave behind is kept: the console, and doctor's JSON (a temporary one)
set -euo pipefail
cd "$(dirname "$0")/../.."

limit=${GUEST_TIMEOUT:-900}
case "${1:-all}" in
    all) versions="6.1 6.12" ;;
    6.1 | 6.12 | idle) versions=$1 ;;
    *) echo "guest: $1 is not a kernel: use 6.1, 6.12, idle or all" >&2; exit 2 ;;
esac
chosen="${*:2}"
# What the kernel of one purpose is for.
[ "$versions" != idle ] || chosen=${chosen:-"$(sed -n 's/^idle_tests="\(.*\)"$/\1/p' tests/guest/inside/idle.sh)"}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
out=${GUEST_OUT:-$work/out}
mkdir -p "$out"

find_thermo() {
    if [ -n "${THERMO:-}" ]; then
        [ -x "$THERMO" ] || { echo "guest: THERMO=$THERMO is not a program" >&2; exit 2; }
        realpath "$THERMO"
        return
    fi
    scripts/deps.sh build
    scripts/cargo.sh build --release --locked --quiet -p thermo-cli -p thermo-lab
    realpath "${CARGO_TARGET_DIR:-target}/release/thermo"
}

case "${GUEST_CLOCK:-}" in
    "") clock="-accel tcg,thread=multi" ;;
    instructions) clock="-accel tcg,thread=single -icount shift=1,sleep=off" ;;
    *) echo "guest: GUEST_CLOCK=$GUEST_CLOCK is not a clock: use instructions, or leave it out" >&2; exit 2 ;;
esac

# Without cmpxchg16b: QEMU 7.2 now and then leaves nonsense in the flags after it, and the kernel dies of them.
# The console goes to a file, what the guest leaves behind comes out of the second serial port, a tar after each test.
boot() { # KERNEL_FOLDER INITRAMFS CONSOLE TAR
    # shellcheck disable=SC2086 # several words
    timeout --foreground --kill-after=10 "$limit" qemu-system-x86_64 -machine q35 $clock -cpu max,-cx16 -smp 2 -m 1536 \
        -nodefaults -no-user-config -display none -no-reboot \
        -kernel "$1/vmlinuz" -initrd "$2" -append "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off tests=${chosen// /,} ${GUEST_APPEND:-}" \
        -chardev "file,id=console,path=$3" -serial chardev:console -chardev "file,id=left,path=$4" -serial chardev:left \
        </dev/null >"$work/qemu.log" 2>&1
}

# Prints the guest's lines, each result with the kernel before it. Whether all went well is left to the counts.
run_guest() { # VERSION
    local version=$1 kernel begin=$SECONDS status=0 console
    case "$version" in
        idle) kernel=$(tests/guest/idle-kernel.sh) ;;
        *) kernel=$(tests/guest/kernel.sh "$version") ;;
    esac
    console=$out/console-$version.log
    tests/guest/initramfs.sh "$thermo" "$kernel" "$work/initramfs-$version"
    echo "guest: booting $(cat "$kernel/release"), its tests take minutes; the console: $console" >&2
    boot "$kernel" "$work/initramfs-$version" "$console" "$work/left-$version.tar" || status=$?
    tr -d '\r' <"$console" >"$work/console"
    mv "$work/console" "$console"
    grep -aE '^(ok|not ok|SKIP|#) ' "$console" >"$work/lines" || true
    if ! grep -aqx 'the guest is done' "$console"; then
        echo "not ok guest: it ended with status $status after $((SECONDS - begin)) s (limit $limit s) before its tests did" >>"$work/lines"
        { cat "$work/qemu.log"; tail -n 30 "$console"; } >&2
    fi
    tar -x --ignore-zeros -f "$work/left-$version.tar" -C "$out" --one-top-level="$version" 2>/dev/null || true
    echo "== $(cat "$kernel/release"), $((SECONDS - begin)) s"
    cat "$work/lines"
    sed "s/^/$version /" "$work/lines" >>"$work/results"
}

count() { grep -acE "^[^ ]+ $1 " "$work/results" || true; }

scripts/deps.sh guest
thermo=$(find_thermo)
for version in $versions; do run_guest "$version"; done
failures=$(count 'not ok')
grep -aE '^[^ ]+ (not ok|SKIP) ' "$work/results" || true
echo "guest: $(count ok) passed, $failures failed, $(count SKIP) skipped"
[ "$failures" -eq 0 ]
