#!/usr/bin/env bash
# Compares `thermo-nbd` with nbdkit (file, memory), qemu-nbd and nbd-server: speed, CPU time and memory,
# interleaved in one run, and a burst that gets other servers OOM-killed in a cgroup of 256 MiB. Servers that
# are not installed are skipped.
#
#   benches/nbd.sh [ROUNDS] [SECONDS]      (default 3 rounds of 2 s; root for the burst)
. "$(dirname "$0")/lib.bash"
need_built "$thermo_nbd"
load=${CARGO_TARGET_DIR:-target}/release/examples/nbd_load
[ -x "$load" ] || scripts/cargo.sh build --release --locked -p thermo-nbd --example nbd_load
keep block-servers "The block server compared with others" python3 benches/nbd.py "$thermo_nbd" "$load" "${1:-3}" "${2:-2}"
