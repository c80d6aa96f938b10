#!/usr/bin/env bash
# `thermo-nbd` beside nbdkit (file, memory), qemu-nbd and nbd-server: speed, CPU and memory, interleaved in one run, and
# the burst that kills servers in a control group of 256 MiB. What is not installed is left out.
#
#   benches/nbd.sh [ROUNDS] [SECONDS]      (default 3 rounds of 2 s; root for the burst)
. "$(dirname "$0")/lib.bash"
need_built "$thermo_nbd"
load=${CARGO_TARGET_DIR:-target}/release/examples/nbd_load
[ -x "$load" ] || scripts/cargo.sh build --release --locked -p thermo-nbd --example nbd_load
keep block-servers "The block server compared with others" python3 benches/nbd.py "$thermo_nbd" "$load" "${1:-3}" "${2:-2}"
