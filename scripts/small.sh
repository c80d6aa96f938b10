#!/usr/bin/env bash
# Builds what packages hold, with the profile `small` of Cargo.toml, in TARGET_DIR/small.
# Usage: scripts/small.sh [CARGO_ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."

flags=${RUSTFLAGS:-}
# On this platform, Rust links with lld. Functions with the same machine code become one (5 % of `thermo`),
# and relocations take a bit each (3 %; glibc 2.36 reads them).
if [ "$(rustc -vV | sed -n 's/^host: //p')" = x86_64-unknown-linux-gnu ]; then
    flags="$flags -Clink-arg=-Wl,--icf=all -Clink-arg=-Wl,-z,pack-relative-relocs"
fi
RUSTFLAGS=$flags scripts/cargo.sh build --profile small --locked -p thermo-cli -p thermo-nbd -p thermo-lab \
    -p thermo-upload -p thermo-capi -p thermo-pool-capi "$@"
