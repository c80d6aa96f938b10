# shellcheck shell=bash
# What scripts that test the command begin with. To be sourced at the root of the repository.

# The thermo to test, in `thermo`: the one that is named, else the one that was built. Without any the script is skipped.
find_thermo() { # [THERMO]
    local target=${CARGO_TARGET_DIR:-target} candidate
    thermo=${1:-}
    for candidate in "$target/release/thermo" "$target/debug/thermo"; do
        [ -n "$thermo" ] || { [ -x "$candidate" ] && thermo=$candidate; }
    done
    [ -x "${thermo:-/nowhere}" ] || { echo "SKIP: no thermo is built" && exit 0; }
    thermo=$(realpath "$thermo")
}

# Skips the script where one of the programs is missing.
need_programs() { # PROGRAM...
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "SKIP: $program is not here" && exit 0; }
    done
}
