# shellcheck shell=bash
# What scripts that test a command begin with. To be sourced at the root of the repository.

# The command NAME to test, in `built`: the one that is given, else the one that was built. Without any the script is skipped.
find_built() { # NAME [PROGRAM]
    local target=${CARGO_TARGET_DIR:-target} candidate
    built=${2:-}
    for candidate in "$target/release/$1" "$target/debug/$1"; do
        [ -n "$built" ] || { [ -x "$candidate" ] && built=$candidate; }
    done
    [ -x "${built:-/nowhere}" ] || { echo "SKIP: no $1 is built" && exit 0; }
    built=$(realpath "$built")
}

# Skips the script where one of the programs is missing.
need_programs() { # PROGRAM...
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "SKIP: $program is not here" && exit 0; }
    done
}
