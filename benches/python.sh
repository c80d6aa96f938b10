#!/usr/bin/env bash
# The Python module: time of its import, and of reading a recording of 600,000 regions into a data frame of
# pandas. An example of the crate recording generates the data. Needs the environment of `make python`.
. "$(dirname "$0")/lib.bash"
environment=
for version in 3.13 3.12 3.11; do
    found=${CARGO_TARGET_DIR:-target}/python/$version/bin/python
    [ -x "$found" ] && environment=$found && break
done
[ -n "$environment" ] || { echo "SKIP: the Python module has no environment: run  make python"; exit 0; }
recording=$work/minute.arrow
if [ -n "${MINUTE:-}" ]; then
    "$MINUTE" "$recording"
else
    scripts/cargo.sh run --quiet --release --locked -p thermo-recording --example minute -- "$recording"
fi
PYTHONPATH=python/src keep python "The Python module" "$environment" benches/python_module.py "$recording"
