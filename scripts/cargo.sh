#!/usr/bin/env bash
# Runs cargo with the given arguments. If cargo is missing or too old, prints what to install.
set -euo pipefail
cd "$(dirname "$0")/.."

# rustup installs cargo in the home directory, which a minimal PATH does not contain.
if ! command -v cargo >/dev/null && [ -x "${HOME:-/root}/.cargo/bin/cargo" ]; then
    PATH="${HOME:-/root}/.cargo/bin:$PATH"
fi

needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
if ! command -v cargo >/dev/null; then
    echo "cargo is not installed: install Rust $needed or newer from https://rustup.rs, then run this again" >&2
    exit 1
fi

found=$(cargo --version | awk '{ print $2 }')
oldest=$(printf '%s\n%s\n' "$needed" "${found%%-*}" | sort -V | head -n 1)
if [ "$oldest" != "$needed" ]; then
    echo "cargo $found is too old, version $needed or newer is needed: run  rustup update stable  (https://rustup.rs)" >&2
    exit 1
fi
exec cargo "$@"
