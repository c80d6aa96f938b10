#!/usr/bin/env bash
# Runs unmodified damo in the emulated 6.12 guest, on the kernel's control files and on those of `thermo fs`:
# the steps of tests/damo.sh, a comparison of the two trees, and a comparison of times.
#
# The guest's clock counts instructions, so that times and access rates do not depend on emulation or on the
# load of this machine.
#
# Usage: tests/guest/damo.sh [TEST...]
#
# TEST                damo_works_on_kernel_files, damo_works_on_thermo_files, damo_trees_are_compared,
#                     damo_is_timed (default: all)
# THERMO=PROGRAM      the binary that runs in the guest (default: a new release build)
# DAMO=PROGRAM        damo in a virtual environment (default: installed with pip, once)
# GUEST_OUT=FOLDER    where tables and lists are saved (default: a temporary folder)
# DAMO_TURNS=N        number of measurements of each time (5)
# DAMO_PACE=N         factor for intervals and deadlines (1)
# DAMO_STEPS=NAME,... steps of tests/damo/check.py (all)
# DAMO_LIMIT=S        time limit of the guest in seconds (3600)
# GUEST_CLOCK=        use the real clock: steps end sooner, but single times mean little
set -euo pipefail
cd "$(dirname "$0")/../.."

all="damo_trees_are_compared damo_is_timed damo_works_on_kernel_files damo_works_on_thermo_files"
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

scripts/deps.sh guest
python3 tests/guest/damo_files.py "$(tests/damo/get.sh)" "$files/root"
# shellcheck disable=SC2086 # several words
GUEST_CLOCK=${GUEST_CLOCK-instructions} GUEST_FILES=$files/root GUEST_TIMEOUT=${DAMO_LIMIT:-3600} GUEST_MODULES="lzo-rle zram fuse" \
    GUEST_PROGRAMS="bash file ps pgrep perf" \
    GUEST_APPEND="damo_pace=${DAMO_PACE:-1} damo_turns=${DAMO_TURNS:-5} ${DAMO_STEPS:+damo_steps=$DAMO_STEPS}" \
    tests/guest/guest.sh 6.12 ${*:-$all}
