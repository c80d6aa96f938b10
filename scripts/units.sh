#!/usr/bin/env bash
# Fails if units below packaging/ share what must be their own (tests/units/check.py), or if one is not
# accepted by systemd, or is exposed by more than 2.0 of 10 (systemd-analyze security). Nothing is started.
#
# Usage: scripts/units.sh
set -euo pipefail
cd "$(dirname "$0")/.."

tests/units/check.py
cd packaging/systemd
if ! command -v systemd-analyze >/dev/null; then
    echo "SKIP: systemd-analyze is not installed, so the units are not checked"
    exit 0
fi
if ! systemd-analyze security --help | grep -q -e --offline; then
    echo "SKIP: this systemd-analyze has no --offline (systemd 250), so the units are not checked"
    exit 0
fi
for unit in *.service; do
    # The threshold is in tenths.
    if ! report=$(systemd-analyze security --offline=true --threshold=20 "./$unit" 2>&1); then
        echo "$report"
        echo "units: $unit is exposed by more than 2.0, or is not accepted" >&2
        exit 1
    fi
    if grep -q -E 'ignoring|Unknown|Failed' <<<"$report"; then
        grep -E 'ignoring|Unknown|Failed' <<<"$report"
        echo "units: $unit has a setting that systemd does not know" >&2
        exit 1
    fi
    echo "units: $(grep -o 'Overall exposure.*' <<<"$report")"
done
