#!/usr/bin/env bash
# Hostile clients of every interface. See strangers.py.
# Usage: tests/strangers/strangers.sh [--seconds N]; THERMO=PROGRAM and THERMO_NBD=PROGRAM choose a build.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/built.sh
. scripts/built.sh

need_programs python3
find_built thermo-nbd "${THERMO_NBD:-}"
thermo_nbd=$built
find_built thermo "${THERMO:-}"
exec python3 -B tests/strangers/strangers.py "$@" "$built" "$thermo_nbd"
