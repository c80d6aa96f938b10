#!/usr/bin/env bash
# Prints the path of unmodified damo. The first call installs it with pip into a cache folder. This repository
# contains no part of damo.
# Usage: tests/damo/get.sh
#
# DAMO=PROGRAM   use this installed damo
set -euo pipefail

version=3.4.3
folder=${XDG_CACHE_HOME:-$HOME/.cache}/thermocline/damo-$version
damo=${DAMO:-$folder/bin/damo}
if [ ! -x "$damo" ] && [ -n "${DAMO:-}" ]; then
    echo "DAMO=$DAMO is not a program" >&2
    exit 1
fi
if [ ! -x "$damo" ]; then
    # The caller prints the last line as the reason of a skip.
    python3 -m venv --clear "$folder" >/dev/null 2>&1 || { echo "python3 cannot create a virtual environment" >&2; exit 1; }
    "$folder/bin/pip" install --quiet --disable-pip-version-check "damo==$version" >/dev/null 2>&1 || { echo "pip cannot install damo $version" >&2; exit 1; }
fi
echo "$damo"
