#!/usr/bin/env bash
# Checks the spelling of all files under version control. The checker (typos) is a Python wheel; where it is
# not installed, it is put into an environment of its own below the target folder.
set -euo pipefail
cd "$(dirname "$0")/.."

version=1.52.0
typos=$(command -v typos || true)
if [ -z "$typos" ]; then
    tools=${CARGO_TARGET_DIR:-target}/tools
    typos=$tools/bin/typos
    if ! [ -x "$typos" ]; then
        python3 -m venv "$tools"
        "$tools/bin/pip" install --quiet --disable-pip-version-check "typos==$version"
    fi
fi
exec "$typos"
