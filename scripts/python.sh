#!/usr/bin/env bash
# Checks the Python module: ruff, mypy --strict and pytest, with Python 3.11, 3.12 and 3.13, each in a virtual
# environment of its own below the target folder. A version that is not installed is skipped, and named.
#
# Usage: scripts/python.sh            all versions, with target/debug/thermo
#        scripts/python.sh --quick    one version: a part of `make test`
#        scripts/python.sh --wheel    builds the wheel (a release build), installs it, and tests that
#
# THERMO and THERMO_FAKE_AGENT name other programs to test with.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-}
case "$mode" in '' | --quick | --wheel) ;; *) echo "python: unknown option $mode: use --quick or --wheel" >&2; exit 2 ;; esac
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export THERMO=${THERMO:-$target/debug/thermo} THERMO_FAKE_AGENT=${THERMO_FAKE_AGENT:-$target/debug/examples/fake_agent}
[ -x "$THERMO_FAKE_AGENT" ] || unset THERMO_FAKE_AGENT
# No files next to the sources.
export PYTHONDONTWRITEBYTECODE=1 MYPY_CACHE_DIR=$target/python/mypy RUFF_CACHE_DIR=$target/python/ruff
export PIP_DISABLE_PIP_VERSION_CHECK=1
checked=()

# scripts/test.sh counts a skip as one of the tests that passed.
skip() { # REASON
    echo "SKIP: $1"
    [ "$mode" != --quick ] || { echo "test result: ok. 1 passed; 0 failed;" && exit 0; }
}

# Prints the path of this Python, if it is installed and can make environments.
find_python() { # VERSION
    local python
    for python in "$(command -v "python$1" || true)" "$(command -v python3 || true)" \
        "${HOME:-/root}"/.pyenv/versions/"$1".*/bin/python /opt/hostedtoolcache/Python/"$1".*/x64/bin/python; do
        [ -x "$python" ] || continue
        [ "$("$python" -c 'import ensurepip, sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$1" ] || continue
        echo "$python"
        return
    done
    return 1
}

# Makes the environment, unless it has all packages already. The last line that it prints is the reason of a
# failure.
make_environment() { # PYTHON FOLDER
    local wanted
    wanted=$(sha256sum python/requirements-test.txt)
    [ "$(cat "$2/installed" 2>/dev/null)" != "$wanted" ] || return 0
    "$1" -m venv --clear "$2" && "$2/bin/pip" install --quiet --retries 1 -r python/requirements-test.txt && echo "$wanted" >"$2/installed"
}

run_checks() { # ENVIRONMENT
    local bin=$1/bin
    (
        cd python
        "$bin/ruff" check --quiet .
        "$bin/ruff" format --quiet --check .
        "$bin/mypy" --python-executable "$bin/python"
        MPLBACKEND=agg "$bin/pytest" --quiet -o cache_dir="$target/python/pytest"
    )
}

check_version() { # VERSION PYTHON
    local environment=$target/python/$1 begin=$SECONDS reason
    if ! reason=$(make_environment "$2" "$environment" 2>&1); then
        skip "the packages of python/requirements-test.txt cannot be installed for Python $1: ${reason##*$'\n'}"
        return
    fi
    echo "== $("$2" -V)"
    PYTHONPATH=$PWD/python/src run_checks "$environment"
    checked+=("$1 ($((SECONDS - begin)) s)")
}

check_wheel() { # VERSION PYTHON
    local environment=$target/python/wheel begin=$SECONDS
    make_environment "$2" "$environment"
    CARGO_TARGET_DIR=$target "$environment/bin/pip" install --quiet --force-reinstall --no-deps ./python
    echo "wheel built and installed in $((SECONDS - begin)) s"
    [ "$("$environment/bin/thermo" --version)" = "thermo $("$environment/bin/python" -c 'import thermocline; print(thermocline.__version__)')" ]
    THERMO=$environment/bin/thermo run_checks "$environment"
    checked+=("$1, the wheel")
}

[ "$mode" = --wheel ] || [ -x "$THERMO" ] || { echo "python: $THERMO is not built: run  make python" >&2; exit 1; }
for version in 3.13 3.12 3.11; do
    if python=$(find_python "$version"); then
        case "$mode" in
            '') check_version "$version" "$python" ;;
            --quick) check_version "$version" "$python"; break ;;
            --wheel) check_wheel "$version" "$python"; break ;;
        esac
    elif [ -z "$mode" ]; then
        skip "Python $version is not installed"
    fi
done
[ "${#checked[@]}" -gt 0 ] || { skip "no Python 3.11 to 3.13 with pip is installed"; exit 1; }
printf 'checked with Python %s\n' "${checked[@]}"
