#!/usr/bin/env bash
# Monitors, reclaims and follows applications for long, while processes and control groups come and go and
# time is suspended. Resident memory, descriptors and threads must stay flat, and no snapshot may be missing.
# Prints a table. Exit code 1: a violation. Needs root. Usage: tests/soak/churn.sh [SECONDS] (one hour);
# THERMO=PROGRAM chooses a build.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/built.sh
. scripts/built.sh

need_programs python3
find_built thermo "${THERMO:-}"
exec python3 tests/soak/churn.py "$built" "${1:-3600}"
