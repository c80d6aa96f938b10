#!/usr/bin/env bash
# Checks the dashboard in Chromium against an agent with made-up figures: every number is that of the API,
# live updates, pause and resume, keyboard, phone, dark colours, no console error. Prints the frame rate of
# the heatmap. Each check prints one line. Exit code 1: a check failed.
#
#   tests/dashboard.sh [--screenshots FOLDER]
#
# If something is missing, prints `SKIP: reason`. Debian: scripts/deps.sh dashboard. FAKE_AGENT names the
# example `fake_agent` of crates/web.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../target}
agent=${FAKE_AGENT:-}

skip() {
    echo "SKIP: dashboard: $1"
    exit 0
}

for candidate in "$target/release/examples/fake_agent" "$target/debug/examples/fake_agent"; do
    [ -n "$agent" ] || { [ -x "$candidate" ] && agent=$candidate; }
done
[ -x "${agent:-/nowhere}" ] || skip "fake_agent is not built: run  cargo build -p thermo-web --example fake_agent"
for program in python3 chromium chromedriver; do
    command -v "$program" >/dev/null || skip "$program is not installed: run  scripts/deps.sh dashboard"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=$("$here/dashboard/get.sh" 2>"$work/error") || skip "$(tail -n 1 "$work/error")"
PYTHONDONTWRITEBYTECODE=1 "$python" "$here/dashboard/check.py" "$agent" "$work" "$@"
