#!/usr/bin/env bash
# Targets that are hard to monitor: thousands of mappings, many threads, many short-lived children, a target
# that ends at once, a large mapping with few pages. Checks for each: no crash, an accurate snapshot, and CPU
# time. Needs root.
# Usage: tests/stress.sh [THERMO]
set -euo pipefail
cd "$(dirname "$0")/.."

thermo=${1:-${THERMO:-${CARGO_TARGET_DIR:-target}/release/thermo}}
thermo=$(realpath "$thermo")
exec python3 tests/stress.py "$thermo"
