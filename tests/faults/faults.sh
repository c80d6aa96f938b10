#!/usr/bin/env bash
# Makes system calls of each command fail, one in each run. See faults.py; needs root and gcc.
# Usage: tests/faults/faults.sh [--runs N] [--seed SEED] [--only NAME,...]; THERMO=PROGRAM and
# THERMO_NBD=PROGRAM choose a build.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/built.sh
. scripts/built.sh

need_programs python3 gcc
find_built thermo-nbd "${THERMO_NBD:-}"
thermo_nbd=$built
find_built thermo "${THERMO:-}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -O2 -o "$work/inject" tests/faults/inject.c
python3 -B tests/faults/faults.py "$@" "$built" "$thermo_nbd" "$work/inject"
