#!/usr/bin/env bash
# Runs schemes for minutes and checks their effect by the kernel's counters, not by thermo's. Prints `ok` or
# `not ok` with figures for each check. Exit code 1: a check is not ok. Needs root, zram, python3, 12 GiB of
# free memory and about 8 minutes. Usage: tests/soak/schemes.sh [CHECK...]; THERMO=PROGRAM chooses a build,
# with thermo-lab in the same folder.
#
# The script creates its own swap, memory cgroup and processes, and removes them at its end, also after a
# signal.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$PWD
# shellcheck source=scripts/zram.sh
. scripts/zram.sh

thermo=$(realpath "${THERMO:-${CARGO_TARGET_DIR:-target}/release/thermo}")
thermo_lab=$(dirname "$thermo")/thermo-lab
folder=$(mktemp -d)
started=()
failed=0

cleanup() {
    set +e
    local pid
    for pid in ${started[@]+"${started[@]}"}; do kill -KILL "$pid" && wait "$pid"; done 2>/dev/null
    [ -z "${group:-}" ] || rmdir "$group"
    remove_zram
    rm -rf "$folder"
}

verdict() { # TRUE-OR-FALSE WHAT FIGURES
    if [ "$1" = 1 ]; then echo "ok - $2: $3"; else echo "not ok - $2: $3"; failed=1; fi
}

holds() { awk "BEGIN { print ($1) ? 1 : 0 }"; }
swap_mib() { awk '$1 == "VmSwap:" { print int($2 / 1024) }' "/proc/$1/status"; }
rss_mib() { awk '$1 == "VmRSS:" { print int($2 / 1024) }' "/proc/$1/status"; }
cpu_ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }

end() { # PID...
    local pid
    for pid in "$@"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; done
}

# Starts a workload with the configuration on standard input; sets target.
begin_workload() {
    cat >"$folder/workload.cfg"
    "$thermo_lab" workload --quiet --truth "$folder/truth" "$folder/workload.cfg" &
    target=$!
    started+=("$target")
    until [ -s "$folder/truth" ]; do
        kill -0 "$target" || { echo "the workload ended" >&2; exit 1; }
        sleep 0.1
    done
}

# Starts a process that touches 4 GiB once, and waits until it has; sets target.
begin_idle_4_gib() {
    python3 - >"$folder/ready" <<'PYTHON' &
import mmap, signal
memory = mmap.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for page in range(0, 4 << 30, 4096):
    memory[page] = 1
print("ready", flush=True)
signal.pause()
PYTHON
    target=$!
    started+=("$target")
    until grep -qs ready "$folder/ready"; do
        kill -0 "$target" || { echo "the process could not allocate 4 GiB" >&2; exit 1; }
        sleep 0.2
    done
}

begin_schemes() { # FILE [OPTIONS]
    "$thermo" schemes apply "$1" --pid "$target" "${@:2}" >"$folder/applied" 2>&1 &
    acting=$!
    started+=("$acting")
}

# Measures the growth of the target's swap in MiB per second: sets grown to the mean and steepest to the
# maximum of a second.
growth() { # SECONDS
    local before now begin=$EPOCHREALTIME first
    first=$(swap_mib "$target")
    before=$first
    steepest=0
    for _ in $(seq "$1"); do
        sleep 1
        now=$(swap_mib "$target")
        [ $((now - before)) -le "$steepest" ] || steepest=$((now - before))
        before=$now
    done
    grown=$(awk "BEGIN { printf \"%.1f\", ($before - $first) / ($EPOCHREALTIME - $begin) }")
}

make_group() {
    local base=/sys/fs/cgroup
    [ ! -d "$base/memory" ] || base=$base/memory
    group=$base/thermo-soak-$$
    mkdir "$group"
}

limit_group() { # BYTES
    if [ -e "$group/memory.max" ]; then echo "$1" >"$group/memory.max"; else echo "$1" >"$group/memory.limit_in_bytes"; fi
}

# Starts a process in the group that touches so many MiB all the time. More than the group's limit causes
# memory pressure.
begin_pressure() { # MIB
    bash -c 'echo $$ >"$0/cgroup.procs"; exec python3 -c "
import mmap, time
size = $1 << 20
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
while True:
    for page in range(0, size, 4096):
        memory[page] = 1
    if size > (1 << 30): time.sleep(1)
"' "$group" "$1" &
    pressure=$!
    started+=("$pressure")
}

# The first example of the DAMOS patches: regions above 100 MiB, accessed in at most 5 % of the checks, for
# two minutes.
check_sentence() {
    begin_workload <<'CONFIG'
used, 67108864
idle, 285212672
spare, 734003200

all
2000
used, 0, 4096, 1
idle, 0, 4096, 1

used
600000
used, 0, 4096, 1
CONFIG
    echo '100M max min 5 2m max pageout' >"$folder/first.damos"
    begin_schemes "$folder/first.damos" --min-regions 3
    sleep 90
    local early used idle
    early=$(swap_mib "$target")
    # Age is counted in aggregations, which last longer on a busy machine.
    local parts waited=90
    while [ "$waited" -lt 300 ]; do
        sleep 10
        waited=$((waited + 10))
        parts=$(python3 tests/soak/swapped.py "$target" "$folder/truth" 10)
        idle=$(echo "$parts" | sed -n 1p)
        [ "$(holds "${idle% *} < 0.95 * ${idle#* }")" = 1 ] || break
    done
    used=$(echo "$parts" | sed -n 2p)
    verdict "$(holds "$early < 1")" "nothing is paged out before its age" "$early MiB in swap after 90 s"
    verdict "$(holds "${idle% *} >= 0.95 * ${idle#* }")" "'100M max min 5 2m max pageout' pages out idle memory" \
        "${idle% *} of ${idle#* } MiB in swap after $waited s (VmSwap $(swap_mib "$target") MiB, VmRSS $(rss_mib "$target") MiB)"
    verdict "$(holds "${used% *} <= 0.02 * ${used#* }")" "memory in use is not paged out" "${used% *} of ${used#* } MiB in swap"
    end "$acting" "$target"
}

check_refusal() {
    begin_workload <<<$'used, 1048576\n\nall\n600000\nused, 0, 4096, 1'
    echo '2M max min 5 1s max migrate_hot' >"$folder/second.damos"
    local message status=0
    message=$("$thermo" schemes apply "$folder/second.damos" --pid "$target" --duration 1s 2>&1) || status=$?
    verdict "$(holds "$status == 2 && index(\"${message//\"/}\", \"migrate_hot cannot be done here\") > 0")" \
        "an unsupported action is an error that names it" "exit $status, $message"
    end "$target"
}

check_size_quota() {
    printf '[[scheme]]\naction = "pageout"\nage = ["1s", "max"]\nnr_accesses = ["0%%", "0%%"]\n[scheme.quota]\nsz = "10M"\nreset_interval = "1s"\n' >"$folder/size.toml"
    begin_idle_4_gib
    # --vma: otherwise gaps between mappings would be charged too.
    begin_schemes "$folder/size.toml" --vma
    sleep 5
    growth 60
    verdict "$(holds "$grown <= 10.5 && $grown >= 8")" "a quota of 10 MiB per second holds over a minute on 4 GiB" "mean $grown MiB/s, maximum of a second $steepest MiB"
    end "$acting" "$target"
}

# CPU use of the process that applies schemes, in percent of one CPU.
cpu_percent() { # SECONDS
    local before begin=$EPOCHREALTIME
    before=$(cpu_ticks "$acting")
    sleep "$1"
    awk "BEGIN { printf \"%.2f\", ($(cpu_ticks "$acting") - $before) / ($EPOCHREALTIME - $begin) }"
}

check_time_quota() {
    local age='age = ["1s", "max"]\nnr_accesses = ["0%%", "0%%"]\n' alone with
    printf "[[scheme]]\naction = \"stat\"\n$age" >"$folder/stat.toml"
    printf "[[scheme]]\naction = \"pageout\"\n$age[scheme.quota]\ntime = \"10ms\"\nreset_interval = \"1s\"\n" >"$folder/time.toml"
    begin_idle_4_gib
    begin_schemes "$folder/stat.toml" --vma
    sleep 5
    alone=$(cpu_percent 30)
    end "$acting"
    begin_schemes "$folder/time.toml" --vma
    sleep 5
    with=$(cpu_percent 60)
    local swapped
    swapped=$(swap_mib "$target")
    verdict "$(holds "$with - $alone <= 1.2 && $swapped > 0")" "a quota of 1 % of a CPU holds over a minute on 4 GiB" \
        "$with % with pageout, $alone % with monitoring only; $swapped MiB in swap"
    end "$acting" "$target"
}

check_priorities() {
    begin_workload <<'CONFIG'
first, 134217728
second, 134217728
third, 134217728

all
4000
first, 0, 4096, 1
second, 0, 4096, 1
third, 0, 4096, 1

two
6000
second, 0, 4096, 1
third, 0, 4096, 1

one
6000
third, 0, 4096, 1

none
600000
CONFIG
    printf '[[scheme]]\naction = "pageout"\nage = ["5s", "max"]\nnr_accesses = ["0%%", "0%%"]\n[scheme.quota]\nsz = "6M"\nreset_interval = "1s"\nweights = { sz = 0, nr_accesses = 0, age = 1 }\n' >"$folder/age.toml"
    begin_schemes "$folder/age.toml" --vma --min-regions 100
    local parts first=0 second=0 third=0
    for _ in $(seq 90); do
        sleep 1
        parts=$(python3 tests/soak/swapped.py "$target" "$folder/truth" 5.5 12)
        read -r first second third <<<"$(echo "$parts" | cut -d' ' -f1 | tr '\n' ' ')"
        [ "${second:-0}" -lt 64 ] || break
    done
    verdict "$(holds "$second >= 64 && $first >= 115 && $third <= 20")" "memory with the longest idle time is paged out first" \
        "MiB in swap of 128 MiB each, by idle time: longest $first, middle $second, shortest ${third:-0}"
    end "$acting" "$target"
}

check_pressure_goal() {
    printf '[[scheme]]\naction = "pageout"\nage = ["1s", "max"]\nnr_accesses = ["0%%", "0%%"]\n[scheme.quota]\nsz = "32M"\nreset_interval = "1s"\ntuner = "temporal"\ngoals = [{ metric = "some_mem_psi_us", target_value = "20ms" }]\n' >"$folder/goal.toml"
    begin_idle_4_gib
    make_group
    limit_group $((64 << 20))
    begin_schemes "$folder/goal.toml" --vma
    sleep 4
    growth 15
    local quiet=$grown pressed released
    begin_pressure 256
    sleep 5
    growth 15
    pressed=$grown
    end_hard "$pressure"
    sleep 4
    growth 15
    released=$grown
    verdict "$(holds "$quiet > 8 && $pressed < 0.25 * $quiet && $released > 0.5 * $quiet")" \
        "a PSI goal stops a scheme under memory pressure, and starts it again" \
        "$quiet MiB/s before, $pressed MiB/s under pressure, $released MiB/s after it"
    end "$acting" "$target"
    rmdir "$group"
    group=
}

end_hard() { kill -KILL "$1" 2>/dev/null; wait "$1" 2>/dev/null || true; }

free_permille() { awk '$1 == "MemTotal:" { t = $2 } $1 == "MemFree:" { f = $2 } END { print int(1000 * f / t) }' /proc/meminfo; }

check_watermark() {
    begin_idle_4_gib
    make_group
    local free quiet pressed released
    free=$(free_permille)
    printf '[[scheme]]\naction = "pageout"\nage = ["1s", "max"]\nnr_accesses = ["0%%", "0%%"]\n[scheme.quota]\nsz = "16M"\nreset_interval = "1s"\n[scheme.watermarks]\nmetric = "free_mem_rate"\ninterval = "1s"\nhigh = "%s%%"\nmid = "%s%%"\nlow = "0%%"\n' \
        $((free / 10 - 4)) $((free / 10 - 6)) >"$folder/marks.toml"
    begin_schemes "$folder/marks.toml" --vma
    sleep 4
    growth 10
    quiet=$grown
    # 12 % of the machine's memory, to get below the watermark.
    begin_pressure $(($(awk '$1 == "MemTotal:" { print $2 }' /proc/meminfo) / 1024 * 12 / 100))
    sleep 10
    growth 15
    pressed=$grown
    end_hard "$pressure"
    sleep 5
    growth 10
    released=$grown
    verdict "$(holds "$quiet < 1 && $pressed > 4 && $released < 1")" \
        "a watermark of free memory activates a scheme under pressure, and deactivates it again" \
        "$quiet MiB/s at $free permille free, $pressed MiB/s under pressure, $released MiB/s after it"
    end "$acting" "$target"
    rmdir "$group"
    group=
}

check_no_quota() {
    echo '4K max 0 0 1s max pageout' >"$folder/none.damos"
    local description before now=0 seconds=0
    description=$("$thermo" schemes check "$folder/none.damos")
    begin_idle_4_gib
    before=$(swap_mib "$target")
    begin_schemes "$folder/none.damos"
    while [ "$seconds" -lt 60 ] && [ "$now" -lt 3890 ]; do
        sleep 1
        seconds=$((seconds + 1))
        now=$(swap_mib "$target")
    done
    verdict "$(holds "$now - $before >= 3890")" "a scheme without a quota is not limited" "$((now - before)) of 4096 MiB in swap within $seconds s; ${description%%$'\n'*}"
    end "$acting" "$target"
}

checks=("$@")
[ "${#checks[@]}" -gt 0 ] || checks=(refusal sentence size_quota time_quota priorities pressure_goal watermark no_quota)
[ "$(id -u)" -eq 0 ] || { echo "this script needs root to create swap and a cgroup and to page out processes: run it with sudo" >&2; exit 2; }
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
make_zram 8G || { echo "this kernel has no zram, which the script needs as swap" >&2; exit 2; }
cd "$here"
for check in "${checks[@]}"; do "check_$check"; done
exit "$failed"
