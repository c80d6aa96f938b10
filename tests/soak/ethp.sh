#!/usr/bin/env bash
# Checks that huge pages follow hot memory, by smaps, page flags and MemFree, on a program with known accesses
# and known content. Prints `ok` or `not ok` with figures for each check. Exit code 1: a check is not ok.
# Needs root, python3, 1 GiB of free memory and about three minutes. Usage: tests/soak/ethp.sh; THERMO=PROGRAM
# chooses a build.
set -euo pipefail
cd "$(dirname "$0")/../.."

thermo=$(realpath "${THERMO:-${CARGO_TARGET_DIR:-target}/release/thermo}")
folder=$(mktemp -d)
failed=0 target='' monitor=''
cleanup() {
    set +e
    local pid
    for pid in $monitor $target; do kill -KILL "$pid" && wait "$pid"; done 2>/dev/null
    rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

verdict() { # TRUE-OR-FALSE WHAT FIGURES
    if [ "$1" = 1 ]; then echo "ok - $2: $3"; else echo "not ok - $2: $3"; failed=1; fi
}

# MiB of FIELD in the range FROM TO (hexadecimal). A mapping that lies partly in the range counts in
# proportion.
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
# MiB of huge pages in a range, by pagemap and page flags: smaps cannot separate adjacent parts of one
# mapping.
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

mkfifo "$folder/commands"
python3 tests/soak/hot_moves.py <"$folder/commands" >"$folder/output" &
target=$!
exec 3>"$folder/commands"
until grep -q ready "$folder/output"; do sleep 0.2; kill -0 "$target"; done
read -r _ pid left right sparse end <"$folder/output"

wait_for() { # SECONDS COMMAND... - prints the seconds until COMMAND succeeded, or "never"
    local since=$SECONDS limit=$1
    shift
    while ! "$@"; do
        if [ $((SECONDS - since)) -ge "$limit" ]; then echo never; return; fi
        sleep 1
    done
    echo $((SECONDS - since))
}
follows() { # HOT-FROM HOT-TO COLD-FROM COLD-TO
    [ "$(huge_in "$1" "$2")" -ge 120 ] && [ "$(huge_in "$3" "$4")" -le 8 ]
}
unused_is_freed() { [ "$(in_range Rss "$sparse" "$end")" -le 8 ]; }
# The program compares all of its memory with its original content. COUNT: number of comparisons so far.
content_is_unchanged() { # COUNT
    echo check >&3
    until [ "$(grep -c -e same -e CHANGED "$folder/output")" -ge "$1" ]; do sleep 0.2; done
    ! grep -q CHANGED "$folder/output"
}

free_before=$(mem_free)
sparse_before=$(in_range Rss "$sparse" "$end")
"$thermo" schemes apply schemes/ethp.damos --pid "$pid" --duration 170s >"$folder/applied" 2>&1 &
monitor=$!
took=$(wait_for 60 follows "$left" "$right" "$right" "$sparse")
verdict "$([ "$took" != never ] && echo 1)" "the hot half gets huge pages, the cold half does not" \
    "$took s; $(huge_in "$left" "$right") and $(huge_in "$right" "$sparse") of 128 MiB"
took=$(wait_for 60 unused_is_freed)
verdict "$([ "$took" != never ] && echo 1)" "unused memory of cold huge pages is freed" \
    "$took s; $sparse_before -> $(in_range Rss "$sparse" "$end") of 64 MiB resident; MemFree $free_before -> $(mem_free) MiB"
echo right >&3
took=$(wait_for 60 follows "$right" "$sparse" "$left" "$right")
verdict "$([ "$took" != never ] && echo 1)" "huge pages follow when the hot half changes" \
    "$took s; $(huge_in "$left" "$right") and $(huge_in "$right" "$sparse") of 128 MiB"
verdict "$(content_is_unchanged 1 && echo 1)" "the content is unchanged" "$(grep -e same -e CHANGED "$folder/output" | tail -1)"
kill -INT "$monitor"
wait "$monitor" || true
monitor=''
cat "$folder/applied"
exit "$failed"
