#!/usr/bin/env bash
# 256 devices attached and detached at random, under I/O and random pressure: no lost answer, no leak, no deadlock.
#
#   tests/soak/nbd.sh [SECONDS] [THERMO_NBD]      (default 900 s, target/release/thermo-nbd)
set -euo pipefail
cd "$(dirname "$0")/../.."
exec python3 tests/soak/nbd.py "${2:-${CARGO_TARGET_DIR:-target}/release/thermo-nbd}" "${1:-900}"
