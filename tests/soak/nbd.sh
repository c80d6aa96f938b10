#!/usr/bin/env bash
# Attaches and detaches 256 devices at random, under I/O and random memory pressure: no lost reply, no leak,
# no deadlock.
#
#   tests/soak/nbd.sh [SECONDS] [THERMO_NBD]      (default 900 s, target/release/thermo-nbd)
set -euo pipefail
cd "$(dirname "$0")/../.."
exec python3 tests/soak/nbd.py "${2:-${CARGO_TARGET_DIR:-target}/release/thermo-nbd}" "${1:-900}"
