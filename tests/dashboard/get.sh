#!/usr/bin/env bash
# Prints the path of a Python that has selenium. The first call installs it with pip into a cache folder.
# Usage: tests/dashboard/get.sh
set -euo pipefail

version=4.51.0
folder=${XDG_CACHE_HOME:-$HOME/.cache}/thermocline/selenium-$version
python=$folder/bin/python
if ! "$python" -c 'import selenium' 2>/dev/null; then
    # The caller prints the last line as the reason of a skip.
    python3 -m venv --clear "$folder" >/dev/null 2>&1 || { echo "python3 cannot create a virtual environment" >&2; exit 1; }
    "$folder/bin/pip" install --quiet --disable-pip-version-check "selenium==$version" >/dev/null 2>&1 || { echo "pip cannot install selenium $version" >&2; exit 1; }
fi
echo "$python"
