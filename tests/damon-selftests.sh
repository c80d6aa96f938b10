#!/usr/bin/env bash
# Runs the kernel's selftests of DAMON (tools/testing/selftests/damon of Linux 6.12), unmodified, on the
# control files of `thermo fs`.
#
#   tests/damon-selftests.sh [TEST...]
#
# The first run extracts the tests from Debian's package linux-source-6.12 into a cache folder. This
# repository contains no part of them. Prints one line per test: ok, FAIL, or SKIP: with the reason. Modules
# may act only on a sleeping process of this script. THERMO names the program under test.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
thermo=$(realpath "${THERMO:-$here/../target/debug/thermo}")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/thermocline
package=linux-source-6.12
tests=$cache/damon-selftests-6.12
timeout_s=180

# This test requires that three of four access checks find its program accessing memory. A program that gets
# no CPU time fails it.
cpu_sensitive=sysfs_update_schemes_tried_regions_wss_estimation.py
# CPU pressure (PSI, percent) from which the machine counts as busy.
busy_percent=20

# Tests of the files of sysfs, of the modules, and of the files of debugfs. All other tests read kernel
# memory.
sysfs=(
    sysfs.sh sysfs_update_removed_scheme_dir.sh sysfs_update_schemes_tried_regions_hang.py damon_nr_regions.py
    damos_quota.py damos_quota_goal.py damos_apply_interval.py damos_tried_regions.py
    sysfs_update_schemes_tried_regions_wss_estimation.py
)
modules=(reclaim.sh lru_sort.sh)
debugfs=(
    debugfs_attrs.sh debugfs_schemes.sh debugfs_target_ids.sh debugfs_empty_targets.sh
    debugfs_huge_count_read_write.sh debugfs_duplicate_context_creation.sh debugfs_rm_non_contexts.sh
    debugfs_target_ids_read_before_terminate_race.sh debugfs_target_ids_pid_leak.sh
)

skip() {
    echo "SKIP: kernel selftests: $1"
    exit 0
}

fetch() {
    local work
    work=$(mktemp -d "$cache/selftests.XXXXXX")
    trap 'rm -rf "$work"' RETURN
    (cd "$work" && apt-get download -qq "$package" 2>/dev/null) || return 1
    dpkg-deb --fsys-tarfile "$work"/*.deb | tar -xO "./usr/src/$package.tar.xz" |
        tar -xJ -C "$work" --strip-components=4 "$package/tools/testing/selftests/damon" || return 1
    mv "$work/damon" "$tests"
}

build() {
    local source
    for source in "$tests"/*.c; do
        [ -x "${source%.c}" ] || gcc -O2 -w -o "${source%.c}" "$source" || return 1
    done
}

# Installs a wrapper of dmesg. Instead of clearing the kernel log, -C remembers its length, and later calls
# print what was added since.
wrap_dmesg() {
    cat >"$work/bin/dmesg" <<EOF
#!/bin/sh
case "\$1" in
-C) $(command -v dmesg) 2>/dev/null | wc -l >$work/seen ;;
*) $(command -v dmesg) 2>/dev/null | tail -n +\$((\$(cat $work/seen 2>/dev/null || echo 0) + 1)) ;;
esac
EOF
    chmod 755 "$work/bin/dmesg"
}

run_once() { # TEST OPTION...
    local name=$1
    shift
    (cd "$tests" && PATH="$work/bin:$PATH" timeout --kill-after=10 "$timeout_s" \
        "$thermo" fs "$@" -- "./$name") >"$work/log" 2>&1 </dev/null
}

pressure() { sed -n 's/^some avg10=\([0-9]*\).*/\1/p' /proc/pressure/cpu 2>/dev/null || echo 0; }

# Waits up to a minute until the machine is less busy.
wait_until_idle() {
    local deadline=$((SECONDS + 60))
    while [ "$(pressure)" -ge "$busy_percent" ] && [ "$SECONDS" -lt "$deadline" ]; do sleep 2; done
}

# Runs a test. Some tests measure time, so a failing test is run again, at most twice, and retries are
# reported.
run() { # TEST OPTION...
    local name=$1 begin=$SECONDS code attempt
    if [ ! -e "$tests/$name" ]; then
        echo "SKIP: $name: not among the selftests of Linux 6.12"
        return
    fi
    for attempt in 1 2 3; do
        code=0
        run_once "$@" || code=$?
        case $code in 0 | 4) break ;; esac
        [ "$attempt" = 3 ] || wait_until_idle
    done
    if [ "$code" -ne 0 ] && [ "$name" = "$cpu_sensitive" ] && [ "$(pressure)" -ge "$busy_percent" ]; then
        echo "SKIP: $name: it failed three times, but the machine is too busy: CPU pressure is $(pressure) % and must be below $busy_percent %"
        return
    fi
    case $code in
    0) echo "ok    $name ($((SECONDS - begin)) s)$([ "$attempt" = 1 ] || echo ", attempt $attempt")" ;;
    4) echo "SKIP: $name: $(tail -n 1 "$work/log")" ;;
    *)
        echo "FAIL  $name: $code"
        sed 's/^/    /' "$work/log" | tail -n 20
        failed=$((failed + 1))
        ;;
    esac
}

is_chosen() { # TEST
    [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $1 "* ]]
}

[ "$(id -u)" = 0 ] || skip "they need root"
[ -e /dev/fuse ] || skip "there is no /dev/fuse"
command -v python3 >/dev/null || skip "python3 is not installed"
command -v gcc >/dev/null || skip "gcc is not installed, which compiles their programs"
mkdir -p "$cache"
if [ ! -d "$tests" ]; then
    command -v apt-get >/dev/null || skip "apt-get is not installed, which downloads $package"
    fetch || skip "apt-get cannot download $package"
fi
build || skip "their programs do not compile"

only=("$@")
failed=0
work=$(mktemp -d)
sleep 3600 &
target=$!
trap 'kill $target; rm -rf "$work"' EXIT
mkdir "$work/bin"
wrap_dmesg
for name in "${sysfs[@]}"; do
    if is_chosen "$name"; then run "$name"; fi
done
for name in "${modules[@]}"; do
    if is_chosen "$name"; then run "$name" --modules-on "$target"; fi
done
for name in "${debugfs[@]}"; do
    if is_chosen "$name"; then run "$name" --layout debugfs; fi
done
[ "$failed" -eq 0 ]
