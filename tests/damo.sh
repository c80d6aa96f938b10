#!/usr/bin/env bash
# Runs damo, unmodified, over our control files, and checks what it says against what a workload really did.
# Usage: tests/damo.sh [--pace N] [STEP...]
#
# Needs root and FUSE; what is not there is told in a line `SKIP: why`. THERMO names the program under test, with thermo-lab beside it, DAMO a damo
# that is there already. On a machine that is very slow, `--pace 4` makes intervals and deadlines four times as long.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
thermo=${THERMO:-$here/../target/debug/thermo}

skip() {
    echo "SKIP: damo: $1"
    exit 0
}

[ "$(id -u)" = 0 ] || skip "it takes root"
[ -e /dev/fuse ] || skip "there is no /dev/fuse"
command -v python3 >/dev/null || skip "there is no python3"
command -v file >/dev/null || skip "damo takes the program file to read records"
command -v less >/dev/null || skip "damo takes the program less to show long texts"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
damo=$("$here/damo/get.sh" 2>"$work/why") || skip "$(tail -n 1 "$work/why")"
"$thermo" fs -- python3 "$here/damo/check.py" "$damo" "$(dirname "$thermo")/thermo-lab" "$work" "$@"
