#!/usr/bin/env bash
# Runs the kernel's own tests of DAMON (tools/testing/selftests/damon of Linux 6.12), unmodified, over our control files.
#
#   tests/damon-selftests.sh [TEST...]
#
# They come from Debian's package linux-source-6.12 into a cache folder, once; nothing of them lies in this repository.
# A line per test: ok, FAIL or SKIP: with the reason. Modules are let act on a process of ours alone. What is not there is
# told in a line `SKIP: why`. THERMO names the program under test.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
thermo=$(realpath "${THERMO:-$here/../target/debug/thermo}")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/thermocline
package=linux-source-6.12
tests=$cache/damon-selftests-6.12
patience=180

# It wants its program to be touching memory at three of four looks, which a program is not that is given no CPU.
wants_cpu=sysfs_update_schemes_tried_regions_wss_estimation.py
# Percent of time in which somebody waits for a CPU, from which on a machine is busy.
much=20

# Over the files of sysfs, over the modules, over those of debugfs. What is not here looks into the kernel's memory.
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
    echo "SKIP: kernel self-tests: $1"
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

# The kernel's log is the machine's, not a test's to clear: what a test sees of it begins when it would have cleared it.
stand_in_for_dmesg() {
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
    (cd "$tests" && PATH="$work/bin:$PATH" timeout --kill-after=10 "$patience" \
        "$thermo" fs "$@" -- "./$name") >"$work/log" 2>&1 </dev/null
}

pressure() { sed -n 's/^some avg10=\([0-9]*\).*/\1/p' /proc/pressure/cpu 2>/dev/null || echo 0; }

# Waits, for a minute at most, until the machine is less busy.
wait_for_calm() {
    local deadline=$((SECONDS + 60))
    while [ "$(pressure)" -ge "$much" ] && [ "$SECONDS" -lt "$deadline" ]; do sleep 2; done
}

# Some of them measure time, on the machine as it is: what fails is run again, at most twice, and said to have been.
run() { # TEST OPTION...
    local name=$1 begin=$SECONDS code attempt
    if [ ! -e "$tests/$name" ]; then
        echo "SKIP: $name: this kernel's tests do not have it"
        return
    fi
    for attempt in 1 2 3; do
        code=0
        run_once "$@" || code=$?
        case $code in 0 | 4) break ;; esac
        [ "$attempt" = 3 ] || wait_for_calm
    done
    if [ "$code" -ne 0 ] && [ "$name" = "$wants_cpu" ] && [ "$(pressure)" -ge "$much" ]; then
        echo "SKIP: $name: it failed three times on a machine too busy for it: CPU pressure $(pressure) %, and less than $much % is wanted"
        return
    fi
    case $code in
    0) echo "ok    $name ($((SECONDS - begin)) s)$([ "$attempt" = 1 ] || echo ", at the $attempt. time")" ;;
    4) echo "SKIP: $name: $(tail -n 1 "$work/log")" ;;
    *)
        echo "FAIL  $name: $code"
        sed 's/^/    /' "$work/log" | tail -n 20
        failed=$((failed + 1))
        ;;
    esac
}

wanted() { # TEST
    [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $1 "* ]]
}

[ "$(id -u)" = 0 ] || skip "they take root"
[ -e /dev/fuse ] || skip "there is no /dev/fuse"
command -v python3 >/dev/null || skip "there is no python3"
command -v gcc >/dev/null || skip "there is no gcc for their programs"
mkdir -p "$cache"
if [ ! -d "$tests" ]; then
    command -v apt-get >/dev/null || skip "there is no apt to fetch $package with"
    fetch || skip "$package cannot be had by apt"
fi
build || skip "their programs cannot be built"

only=("$@")
failed=0
work=$(mktemp -d)
sleep 3600 &
target=$!
trap 'kill $target; rm -rf "$work"' EXIT
mkdir "$work/bin"
stand_in_for_dmesg
for name in "${sysfs[@]}"; do
    if wanted "$name"; then run "$name"; fi
done
for name in "${modules[@]}"; do
    if wanted "$name"; then run "$name" --modules-on "$target"; fi
done
for name in "${debugfs[@]}"; do
    if wanted "$name"; then run "$name" --layout debugfs; fi
done
[ "$failed" -eq 0 ]
