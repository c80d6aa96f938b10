#!/usr/bin/env bash
# Targets that are hard to watch: thousands of mappings, many threads, a storm of children, a target that is gone
# at once, a vast mapping with little in it. For each: no crash, the right picture, and our CPU time. As root.
# Usage: tests/stress.sh [THERMO]
set -euo pipefail
cd "$(dirname "$0")/.."

thermo=${1:-${THERMO:-${CARGO_TARGET_DIR:-target}/release/thermo}}
thermo=$(realpath "$thermo")
exec python3 tests/stress.py "$thermo"
