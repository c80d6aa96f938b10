#!/usr/bin/env bash
# Tests `thermo top` in a real terminal (tmux), at 80×24 and 200×50: a replay of a recording of a small
# process. Sends keys, checks what is shown, and that the terminal is restored after q, Ctrl-C and SIGTERM.
#
#   tests/top.sh [THERMO]        (default: target/release/thermo, else target/debug/thermo)
#
# PANES=DIR keeps the captured screens in DIR. Debian package: tmux.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/built.sh
. scripts/built.sh
find_built thermo "${1:-}"
thermo=$(realpath "$built")
command -v tmux > /dev/null || { echo "SKIP: tmux is not installed"; exit 0; }
work=$(mktemp -d)
panes=${PANES:-$work}
mkdir -p "$panes"
# A server of its own: nothing of the user's tmux is touched.
tmux=(tmux -L "thermo-top-$$" -f /dev/null)
target=
cleanup() {
    [ -z "$target" ] || kill "$target" 2> /dev/null || true
    "${tmux[@]}" kill-server 2> /dev/null || true
    rm -r "$work"
}
trap cleanup EXIT
export LC_ALL=C.UTF-8 TZ=UTC

cat > "$work/target.py" << 'EOF'
import time

idle = bytearray(24 << 20)
hot = bytearray(8 << 20)
while True:
    for at in range(0, len(hot), 4096):
        hot[at] = 1
    time.sleep(0.05)
EOF
python3 "$work/target.py" &
target=$!
"$thermo" record -o "$work/small.arrow" --duration 6s --pid "$target" 2> "$work/errors" ||
    { echo "SKIP: nothing can be recorded: $(tail -1 "$work/errors")" && exit 0; }
kill "$target"

fail() {
    echo "FAILED: $1"
    screen
    exit 1
}
screen() { "${tmux[@]}" capture-pane -p -t top; }
keys() { "${tmux[@]}" send-keys -t top "$@"; }
# Waits until the screen has the text.
has() {
    for _ in $(seq 200); do
        if screen | grep -qF -- "$1"; then return; fi
        sleep 0.1
    done
    fail "the screen has no '$1'"
}
keep() { screen > "$panes/$1-$size.txt"; }
open() {
    keys "${1:-}$thermo top --replay $work/small.arrow; echo exit code \$?" Enter
    has "replay of small.arrow"
}
# The shell is back: its own screen, a visible cursor, echo and lines.
restored() {
    has "exit code $1"
    if screen | grep -q "thermo top  replay"; then fail "the screen was not restored after $2"; fi
    [ "$("${tmux[@]}" display-message -p -t top '#{alternate_on} #{cursor_flag}')" = "0 1" ] ||
        fail "the terminal is not restored after $2"
    keys "clear; stty -a | tr ' ' '\\n' | grep -xc -e echo -e icanon -e isig" Enter
    has 3
    keys "clear" Enter
}

run() {
    local width=$1 height=$2
    size=${width}x$height
    "${tmux[@]}" new-session -d -s top -x "$width" -y "$height" "PS1='$ ' bash --norc"
    has "$"
    open
    has "paused"
    has "python3"
    keep targets
    keys a a a
    has "≥ 1 s"
    keys Enter
    has "idle for"
    has "anon"
    keep ages
    keys 2
    has "access rate:"
    has "[anon]"
    keep heatmap
    keys 3
    has "decision"
    has "are monitored"
    keep decisions
    keys b
    has "●"
    keys Space
    has "playing"
    has "paused"
    keys Left Left
    keys "+" "+"
    has "×4"
    keep replay
    keys Escape p
    has "matches"
    keep policies
    keys Enter
    has "A replay has nothing to pause."
    keys "?"
    has "any key closes"
    keep help
    keys x q
    restored 0 q
    open "NO_COLOR=1 "
    keys Enter 2
    has "access rate: · none"
    keep no-colour
    keys C-c
    restored 130 Ctrl-C
    open
    kill -TERM "$(pgrep -nf "top --replay $work/small.arrow")"
    restored 130 SIGTERM
    open
    "${tmux[@]}" resize-window -t top -x 100 -y 30
    has "q quit"
    [ "$(screen | wc -l)" -eq 30 ] || fail "the screen did not follow the terminal"
    keys q
    restored 0 q
    "${tmux[@]}" kill-session -t top
    echo "thermo top at $width×$height: screens, keys and the end are right"
}

if "$thermo" top --replay "$work/small.arrow" > "$work/out" 2>&1; then
    echo "FAILED: thermo top runs without a terminal"
    exit 1
elif [ "$(cat "$work/out" | wc -l)" -ne 1 ]; then
    echo "FAILED: not one sentence: $(cat "$work/out")"
    exit 1
fi
run 80 24
run 200 50
