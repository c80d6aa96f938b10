#!/usr/bin/env bash
# Prints the program damo, unmodified: fetched from pip into a cache folder, once; nothing of it lies in this repository.
# Usage: tests/damo/get.sh
#
# DAMO=PROGRAM        one that is there already
set -euo pipefail

version=3.4.3
folder=${XDG_CACHE_HOME:-$HOME/.cache}/thermocline/damo-$version
damo=${DAMO:-$folder/bin/damo}
if [ ! -x "$damo" ] && [ -n "${DAMO:-}" ]; then
    echo "DAMO=$DAMO is not a program" >&2
    exit 1
fi
if [ ! -x "$damo" ]; then
    # Its last words are for who skips: one sentence.
    python3 -m venv --clear "$folder" >/dev/null 2>&1 || { echo "python cannot make virtual environments" >&2; exit 1; }
    "$folder/bin/pip" install --quiet --disable-pip-version-check "damo==$version" >/dev/null 2>&1 || { echo "damo cannot be had from pip" >&2; exit 1; }
fi
echo "$damo"
