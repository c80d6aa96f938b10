#!/usr/bin/env bash
# Runs damo, unmodified, over our control files, and checks what it says against what a workload really did.
#
# damo is taken from pip into a cache folder, once; nothing of it lies in this repository. Needs root and FUSE; what
# is not there is told in a line `SKIP: why`. THERMO names the program under test, DAMO a damo that is there already.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=3.4.3
cache=${XDG_CACHE_HOME:-$HOME/.cache}/thermocline
thermo=${THERMO:-$here/../target/debug/thermo}

skip() {
    echo "SKIP: damo: $1"
    exit 0
}

[ "$(id -u)" = 0 ] || skip "it takes root"
[ -e /dev/fuse ] || skip "there is no /dev/fuse"
command -v python3 >/dev/null || skip "there is no python3"
command -v file >/dev/null || skip "damo takes the program file to read records"
damo=${DAMO:-$cache/damo-$version/bin/damo}
if [ ! -x "$damo" ]; then
    python3 -m venv "$cache/damo-$version" || skip "python cannot make virtual environments"
    "$cache/damo-$version/bin/pip" install --quiet "damo==$version" || skip "damo cannot be had from pip"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$thermo" fs -- python3 "$here/damo/check.py" "$damo" "$thermo" "$work" "$@"
