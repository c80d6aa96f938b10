# shellcheck shell=bash
# Helpers for scripts that test a command. Source it at the root of the repository.

# Sets `built` to the command to test: PROGRAM if given, else the release or debug build. Without any, skips
# the script.
find_built() { # NAME [PROGRAM]
    local target=${CARGO_TARGET_DIR:-target} candidate
    built=${2:-}
    for candidate in "$target/release/$1" "$target/debug/$1"; do
        [ -n "$built" ] || { [ -x "$candidate" ] && built=$candidate; }
    done
    [ -x "${built:-/nowhere}" ] || { echo "SKIP: $1 is not built: run  make build" && exit 0; }
    built=$(realpath "$built")
}

# Skips the script if one of the programs is missing.
need_programs() { # PROGRAM...
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "SKIP: $program is not installed" && exit 0; }
    done
}
