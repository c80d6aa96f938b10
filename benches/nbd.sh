#!/usr/bin/env bash
# `thermo nbd` beside nbdkit (file, memory), qemu-nbd and nbd-server: speed, CPU and memory, interleaved in one run, and
# the burst that kills servers in a control group of 256 MiB. Writes a table; what is not installed is left out.
#
#   benches/nbd.sh [ROUNDS] [SECONDS]      (default 3 rounds of 2 s; root for the burst)
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
[ -x "$target/release/thermo" ] || make build
[ -x "$target/release/examples/nbd_load" ] || scripts/cargo.sh build --release --locked -p thermocline-nbd --example nbd_load
exec python3 benches/nbd.py "$target/release/thermo" "$target/release/examples/nbd_load" "${1:-3}" "${2:-2}"
