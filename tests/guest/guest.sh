#!/usr/bin/env bash
# Boots Debian's kernels in QEMU and runs the tests of inside/ there with the real binary. This tests other
# kernels than this machine's, with swap, control groups and in-kernel DAMON. Software emulation: /dev/kvm is
# not used.
# Usage: tests/guest/guest.sh [6.1|6.12|idle|all] [TEST...]
#
# Tests that begin with tiers_ run in a second machine, with two memory nodes of which one has no CPUs.
#
# all                 both of Debian's kernels
# idle                the kernel of idle-kernel.sh, whose first build takes minutes
# TEST                functions of inside/*.sh (default: all that can fail; those of contest.sh take minutes
#                     and only measure)
# THERMO=PROGRAM      the binary to test, with thermo-lab in the same folder (default: a new release build)
# GUEST_TIMEOUT=S     time limit of a guest in seconds (900)
# GUEST_CLOCK=instructions  the guest's clock advances by 2 ns per instruction, whatever the load of this
#                     machine, and sleeping takes no real time: for comparisons, not for tests that wait for
#                     time to pass
# GUEST_APPEND=WORDS  more words for the kernel's command line
# GUEST_PROGRAMS, GUEST_FILES, GUEST_MODULES  further content of the guest: see initramfs.sh and kernel.sh
# GUEST_OUT=FOLDER    where results are saved: the console and doctor's JSON (default: a temporary folder)
set -euo pipefail
cd "$(dirname "$0")/../.."

limit=${GUEST_TIMEOUT:-900}
case "${1:-all}" in
    all) versions="6.1 6.12" ;;
    6.1 | 6.12 | idle) versions=$1 ;;
    *) echo "guest: unknown kernel $1: use 6.1, 6.12, idle or all" >&2; exit 2 ;;
esac
chosen="${*:2}"
# The default tests of the kernel with the idle-page bitmap.
[ "$versions" != idle ] || chosen=${chosen:-"$(sed -n 's/^idle_tests="\(.*\)"$/\1/p' tests/guest/inside/idle.sh)"}

# The tests that need two memory nodes, and the others. Without a choice: all of both.
tier_tests=$(sed -n 's/^tier_tests="\(.*\)"$/\1/p' tests/guest/inside/tiers.sh)
on_one=$chosen on_two=
case "$versions $chosen" in
    idle*) ;;
    *" ") on_two=$tier_tests ;;
    *)
        on_one=
        for test in $chosen; do
            case "$test" in tiers_*) on_two="$on_two $test" ;; *) on_one="$on_one $test" ;; esac
        done
        ;;
esac

# The guest reads all files into one shell: of two functions of one name, the second would replace the first.
twice=$(sed -n 's/^\([a-z_0-9]*\)().*/\1/p' tests/guest/inside/*.sh | sort | uniq -d | xargs)
[ -z "$twice" ] || { echo "guest: two functions in tests/guest/inside have the same name: $twice" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# Puts a server of this machine into the guest if a chosen test needs it.
add_server() { # PATTERN SERVER PROGRAMS
    case "$on_two" in *$1*) ;; *) return 0 ;; esac
    command -v "${3##* }" >/dev/null || { echo "guest: the chosen tests $1 need $2: install the package $2, or choose other tests" >&2; exit 2; }
    export GUEST_PROGRAMS="${GUEST_PROGRAMS:-} $3"
}
add_server tiers_hot_is_near redis-server "redis-server redis-cli redis-benchmark"
add_server tiers_contest_redis redis-server "redis-server redis-cli redis-benchmark"
add_server mariadb mariadb-server "mariadb mariadbd"
case "$on_two" in
    *mariadb*)
        mkdir "$work/files"
        [ -z "${GUEST_FILES:-}" ] || cp -a "$GUEST_FILES/." "$work/files/"
        tests/guest/mariadb.sh "$work/files" "$(sed -n 's/^mark=//p' tests/guest/inside/tiers.sh)"
        export GUEST_FILES=$work/files
        ;;
esac

out=${GUEST_OUT:-$work/out}
mkdir -p "$out"

find_thermo() {
    if [ -n "${THERMO:-}" ]; then
        [ -x "$THERMO" ] || { echo "guest: THERMO=$THERMO is not an executable file" >&2; exit 2; }
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
    *) echo "guest: unknown GUEST_CLOCK=$GUEST_CLOCK: use instructions, or unset it" >&2; exit 2 ;;
esac

# The CPU has no cmpxchg16b: QEMU 7.2 sometimes sets wrong flags after this instruction, which crashes the
# kernel. On a loaded machine the kernel finds that its timer is too slow, and panics: no_timer_check. It also
# finds the time-stamp counter unstable, and changes code that the other CPU executes. QEMU does not always
# notice that (Oops: int3): tsc=reliable. The console goes to a file. The second serial port transfers result
# files as a tar archive after each test.
hmat() { # NODE LATENCY_NS BANDWIDTH
    echo "-numa hmat-lb,initiator=0,target=$1,hierarchy=memory,data-type=access-latency,latency=$2
        -numa hmat-lb,initiator=0,target=$1,hierarchy=memory,data-type=access-bandwidth,bandwidth=$3"
}
boot() { # KERNEL_FOLDER INITRAMFS CONSOLE TAR TESTS one|two
    local memory="-m 1536"
    # The second node has no CPUs, as CXL memory appears, and is slower by the tables of the firmware. Without
    # these, the kernel puts both nodes into one tier.
    [ "$6" = one ] || memory="-machine hmat=on -m 2048
        -object memory-backend-ram,id=m0,size=1G -numa node,nodeid=0,cpus=0-1,memdev=m0
        -object memory-backend-ram,id=m1,size=1G -numa node,nodeid=1,memdev=m1,initiator=0
        $(hmat 0 90 100G) $(hmat 1 250 30G)"
    # shellcheck disable=SC2086 # several words
    timeout --foreground --kill-after=10 "$limit" qemu-system-x86_64 -machine q35 $clock -cpu max,-cx16 -smp 2 $memory \
        -nodefaults -no-user-config -display none -no-reboot \
        -kernel "$1/vmlinuz" -initrd "$2" -append "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off no_timer_check tsc=reliable tests=${5// /,} ${GUEST_APPEND:-}" \
        -chardev "file,id=console,path=$3" -serial chardev:console -chardev "file,id=results,path=$4" -serial chardev:results \
        </dev/null >"$work/qemu.log" 2>&1
}

# Runs one guest, prints its result lines, and appends them to $work/results after the kernel version.
run_guest() { # VERSION TESTS one|two
    local version=$1 kernel begin=$SECONDS status=0 console label=$1
    [ "$3" = one ] || label=$1-two-nodes
    case "$version" in
        idle) kernel=$(tests/guest/idle-kernel.sh) ;;
        *) kernel=$(tests/guest/kernel.sh "$version") ;;
    esac
    console=$out/console-$label.log
    tests/guest/initramfs.sh "$thermo" "$kernel" "$work/initramfs-$label"
    echo "guest: booting $(cat "$kernel/release"), its tests take minutes; console: $console" >&2
    boot "$kernel" "$work/initramfs-$label" "$console" "$work/results-$label.tar" "${2# }" "$3" || status=$?
    tr -d '\r' <"$console" >"$work/console"
    mv "$work/console" "$console"
    grep -aE '^(ok|not ok|SKIP|share|#) ' "$console" >"$work/lines" || true
    if ! grep -aqx 'the guest has finished' "$console"; then
        echo "not ok guest: it ended with status $status after $((SECONDS - begin)) s (limit $limit s), before the end of its tests" >>"$work/lines"
        { cat "$work/qemu.log"; tail -n 30 "$console"; } >&2
    fi
    tar -x --ignore-zeros -f "$work/results-$label.tar" -C "$out" --one-top-level="$label" 2>/dev/null || true
    echo "== $(cat "$kernel/release"), $3 memory node(s), $((SECONDS - begin)) s"
    cat "$work/lines"
    sed "s/^/$label /" "$work/lines" >>"$work/results"
}

count() { grep -acE "^[^ ]+ $1 " "$work/results" || true; }

scripts/deps.sh guest
thermo=$(find_thermo)
for version in $versions; do
    [ -n "$on_two" ] && [ -z "$on_one" ] && [ -n "$chosen" ] || run_guest "$version" "$on_one" one
    [ -z "$on_two" ] || run_guest "$version" "$on_two" two
done
failures=$(count 'not ok')
grep -aE '^[^ ]+ (not ok|SKIP) ' "$work/results" || true
echo "guest: $(count ok) passed, $failures failed, $(count SKIP) skipped"
sed -n 's/^\([^ ]*\) share /\1 /p' "$work/results"
[ "$failures" -eq 0 ]
