#!/usr/bin/env bash
# Kills every command that acts or writes at random moments. See kills.py.
# Usage: tests/kills/kills.sh [--count N] [--seed SEED] [--only NAME,...]; THERMO=PROGRAM and
# THERMO_NBD=PROGRAM choose a build.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/built.sh
. scripts/built.sh

need_programs python3 redis-server
find_built thermo-nbd "${THERMO_NBD:-}"
thermo_nbd=$built
find_built thermo "${THERMO:-}"
exec python3 -B tests/kills/kills.py "$@" "$built" "$thermo_nbd"
