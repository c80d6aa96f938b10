#!/usr/bin/env bash
# Runs unmodified damo on the control files of `thermo fs`, and checks its output against the accesses of a
# workload.
# Usage: tests/damo.sh [--pace N] [STEP...]
#
# Needs root and FUSE. If something is missing, prints `SKIP: reason`. THERMO names the program under test,
# with thermo-lab in the same folder. DAMO names an installed damo. For a very slow machine, `--pace 4`
# multiplies intervals and deadlines by four.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
thermo=${THERMO:-$here/../target/debug/thermo}

skip() {
    echo "SKIP: damo: $1"
    exit 0
}

[ "$(id -u)" = 0 ] || skip "this test needs root"
[ -e /dev/fuse ] || skip "there is no /dev/fuse"
command -v python3 >/dev/null || skip "python3 is not installed"
command -v file >/dev/null || skip "the program file is not installed, which damo uses to read records"
command -v less >/dev/null || skip "the program less is not installed, which damo uses to show long texts"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
damo=$("$here/damo/get.sh" 2>"$work/error") || skip "$(tail -n 1 "$work/error")"
"$thermo" fs -- python3 "$here/damo/check.py" "$damo" "$(dirname "$thermo")/thermo-lab" "$work" "$@"
