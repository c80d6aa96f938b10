#!/usr/bin/env bash
# Checks the package of the fleet: ruff, mypy --strict and pytest, in a virtual environment below the target
# folder. Without Java 17, the tests that need Spark are skipped, and named.
#
# Usage: scripts/fleet.sh            all tests
#        scripts/fleet.sh --quick    without the standalone cluster: a part of `make test`
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-}
case "$mode" in '' | --quick) ;; *) echo "fleet: unknown option $mode: use --quick" >&2; exit 2 ;; esac
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
environment=$target/fleet/environment
# No files next to the sources.
export PYTHONDONTWRITEBYTECODE=1 MYPY_CACHE_DIR=$target/fleet/mypy RUFF_CACHE_DIR=$target/fleet/ruff
export PIP_DISABLE_PIP_VERSION_CHECK=1
begin=$SECONDS

# scripts/test.sh counts a skip as one of the tests that passed.
skip() { # REASON
    echo "SKIP: $1"
    [ "$mode" != --quick ] || { echo "test result: ok. 1 passed; 0 failed;" && exit 0; }
    exit 1
}

# Prints the path of a Python that pyspark supports and that can make environments.
find_python() {
    local python
    for python in python3 python3.13 python3.12 python3.11; do
        "$python" -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || continue
        command -v "$python"
        return
    done
    return 1
}

# Makes the environment, unless it has all packages already. The last line that it prints is the reason of a
# failure.
make_environment() { # PYTHON
    local wanted
    wanted=$(sha256sum fleet/requirements-test.txt)
    [ "$(cat "$environment/installed" 2>/dev/null)" != "$wanted" ] || return 0
    "$1" -m venv --clear "$environment" &&
        PYTHONDONTWRITEBYTECODE='' "$environment/bin/pip" install --quiet --retries 1 -r fleet/requirements-test.txt &&
        echo "$wanted" >"$environment/installed"
}

python=$(find_python) || skip "no Python 3.11 to 3.13 with pip is installed"
reason=$(make_environment "$python" 2>&1) ||
    skip "the packages of fleet/requirements-test.txt cannot be installed: ${reason##*$'\n'}"
echo "== $("$environment/bin/python" -V), $("$environment/bin/python" -c 'import pyspark; print("pyspark", pyspark.__version__)')"
export PYTHONPATH=$PWD/fleet/src PATH=$environment/bin:$PATH
cd fleet
ruff check --quiet .
ruff format --quiet --check .
mypy --python-executable "$environment/bin/python"
selected=(-m 'not cluster')
[ "$mode" = --quick ] || selected=()
pytest --quiet -o cache_dir="$target/fleet/pytest" ${selected[@]+"${selected[@]}"}
echo "checked in $((SECONDS - begin)) s"
