#!/usr/bin/env bash
# Huge pages follow what is hot: judged by smaps and MemFree, on a program that knows what it touches and what stands in
# its memory. Prints `ok` or `not ok` with the figures for each; ends with 1 when one is not ok. Needs root, python3, 1 GiB
# of free memory and about three minutes. Usage: tests/soak/ethp.sh; THERMO=PROGRAM to choose a build.
set -euo pipefail
cd "$(dirname "$0")/../.."

thermo=$(realpath "${THERMO:-${CARGO_TARGET_DIR:-target}/release/thermo}")
folder=$(mktemp -d)
failed=0 target='' watcher=''
cleanup() {
    set +e
    local pid
    for pid in $watcher $target; do kill -KILL "$pid" && wait "$pid"; done 2>/dev/null
    rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

verdict() { # TRUE-OR-FALSE WHAT FIGURES
    if [ "$1" = 1 ]; then echo "ok - $2: $3"; else echo "not ok - $2: $3"; failed=1; fi
}

# MiB of FIELD in the mappings of the range FROM TO (hexadecimal), as far as they begin in it.
in_range() { # FIELD FROM TO
    python3 - "$pid" "$@" <<'PY'
import re, sys
pid, field, start, end = sys.argv[1], sys.argv[2], int(sys.argv[3], 16), int(sys.argv[4], 16)
total, inside = 0, 0
for line in open(f"/proc/{pid}/smaps"):
    if head := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
        a, b = int(head[1], 16), int(head[2], 16)
        inside = max(0, min(b, end) - max(a, start)) / (b - a)
    elif inside and line.startswith(field + ":"):
        total += inside * int(line.split()[1])
print(int(total) >> 10)
PY
}
# Which part is huge is told by page tables only: neighbouring parts may be one mapping.
huge_in() { # FROM TO
    python3 - "$pid" "$@" <<'PY'
import struct, sys
pid, start, end = sys.argv[1], int(sys.argv[2], 16), int(sys.argv[3], 16)
huge = 0
with open(f"/proc/{pid}/pagemap", "rb") as pages, open("/proc/kpageflags", "rb") as flags:
    for at in range(start, end, 2 << 20):
        pages.seek(at // 4096 * 8)
        entry = struct.unpack("Q", pages.read(8))[0]
        if entry >> 63 & 1:
            flags.seek((entry & (1 << 55) - 1) * 8)
            word = struct.unpack("Q", flags.read(8))[0]
            huge += word >> 22 & word >> 15 & 1
print(huge * 2)
PY
}
mem_free() { awk '$1 == "MemFree:" { print int($2 / 1024) }' /proc/meminfo; }

mkfifo "$folder/words"
python3 tests/soak/hot_moves.py <"$folder/words" >"$folder/said" &
target=$!
exec 3>"$folder/words"
until grep -q ready "$folder/said"; do sleep 0.2; kill -0 "$target"; done
read -r _ pid left right thin end <"$folder/said"

wait_for() { # SECONDS COMMAND... - prints after how many seconds it was true, or "never"
    local since=$SECONDS most=$1
    shift
    while ! "$@"; do
        if [ $((SECONDS - since)) -ge "$most" ]; then echo never; return; fi
        sleep 1
    done
    echo $((SECONDS - since))
}
follows() { # HOT-FROM HOT-TO COLD-FROM COLD-TO
    [ "$(huge_in "$1" "$2")" -ge 120 ] && [ "$(huge_in "$3" "$4")" -le 8 ]
}
comes_back() { [ "$(in_range Rss "$thin" "$end")" -le 8 ]; }
# Other bytes in the middle of it would not be noticed by the kernel: the program compares all.
same() {
    echo check >&3
    until [ "$(grep -c -e same -e CHANGED "$folder/said")" -ge "$1" ]; do sleep 0.2; done
    ! grep -q CHANGED "$folder/said"
}

free_before=$(mem_free)
thin_before=$(in_range Rss "$thin" "$end")
"$thermo" schemes apply schemes/ethp.damos --pid "$pid" --duration 170s >"$folder/told" 2>&1 &
watcher=$!
took=$(wait_for 60 follows "$left" "$right" "$right" "$thin")
verdict "$([ "$took" != never ] && echo 1)" "the hot half becomes huge, the cold half not" \
    "$took s; $(huge_in "$left" "$right") and $(huge_in "$right" "$thin") of 128 MiB"
took=$(wait_for 60 comes_back)
verdict "$([ "$took" != never ] && echo 1)" "what was never used of cold huge pages comes back" \
    "$took s; $thin_before -> $(in_range Rss "$thin" "$end") of 64 MiB resident; MemFree $free_before -> $(mem_free) MiB"
echo right >&3
took=$(wait_for 60 follows "$right" "$thin" "$left" "$right")
verdict "$([ "$took" != never ] && echo 1)" "when the pattern moves, huge pages move" \
    "$took s; $(huge_in "$left" "$right") and $(huge_in "$right" "$thin") of 128 MiB"
verdict "$(same 1 && echo 1)" "every byte is where it was" "$(grep -e same -e CHANGED "$folder/said" | tail -1)"
kill -INT "$watcher"
wait "$watcher" || true
watcher=''
cat "$folder/told"
exit "$failed"
