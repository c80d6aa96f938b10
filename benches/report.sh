#!/usr/bin/env bash
# A recording of one minute with 1000 regions: its size, and time and memory of reports, compared with damo
# 3.4.3 (from PyPI) on the same data. An example of the crate recording generates the data.
. "$(dirname "$0")/lib.bash"
need_built "$thermo"
damo_version=3.4.3
venv=${DAMO_VENV:-${CARGO_TARGET_DIR:-target}/damo-$damo_version}

get_damo() {
    [ -x "$venv/bin/damo" ] && return
    python3 -m venv "$venv" && "$venv/bin/pip" install --quiet "damo==$damo_version"
}

measure() {
    "$thermo" export "$work/minute.arrow" --format damo-json -o "$work/minute.damo"
    echo "one minute, 1000 regions, 600 snapshots: $(stat -c %s "$work/minute.arrow") bytes recorded, $(stat -c %s "$work/minute.damo") as damo's compressed JSON"
    python3 benches/report.py "$thermo" "$venv/bin/damo" "$work/minute.arrow" "$work/minute.damo"
}

get_damo >&2 || echo "damo cannot be installed with pip: only thermo is measured" >&2
if [ -n "${MINUTE:-}" ]; then
    "$MINUTE" "$work/minute.arrow"
else
    scripts/cargo.sh run --quiet --release --locked -p thermo-recording --example minute -- "$work/minute.arrow"
fi
keep report "Reports on a minute of 1000 regions, compared with damo" measure
