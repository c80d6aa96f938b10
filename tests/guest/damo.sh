#!/usr/bin/env bash
# Runs damo, unmodified, in the emulated 6.12 guest: the steps of tests/damo.sh over the kernel's own control files and
# over ours, what the two trees are like, and what takes how long on each; the latter two as tables.
#
# The guest's clock counts instructions, so that neither emulation nor what else this machine does is in the times, nor in
# how often a page is touched between two looks.
#
# Usage: tests/guest/damo.sh [damo_over_the_kernels|damo_over_ours|damo_trees_compared|damo_timed...]
#
# THERMO=PROGRAM      the binary that runs in the guest (else a release build is made)
# DAMO=PROGRAM        a damo of a virtual environment (else it is taken from pip, once)
# GUEST_OUT=FOLDER    where tables and lists are kept (a temporary one)
# DAMO_TURNS=N        how often each thing is timed (5)
# DAMO_PACE=N         how many times as long as usual intervals and deadlines are (1)
# DAMO_STEPS=NAME,... steps of tests/damo/check.py (all)
# DAMO_LIMIT=S        after so many seconds the guest is ended (3600)
# GUEST_CLOCK=        by the clock on the wall instead: steps are through sooner, times of one turn say little
set -euo pipefail
cd "$(dirname "$0")/../.."

all="damo_trees_compared damo_timed damo_over_the_kernels damo_over_ours"
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

scripts/deps.sh guest
python3 tests/guest/damo_files.py "$(tests/damo/get.sh)" "$files/root"
# shellcheck disable=SC2086 # several words
GUEST_CLOCK=${GUEST_CLOCK-instructions} GUEST_FILES=$files/root GUEST_TIMEOUT=${DAMO_LIMIT:-3600} GUEST_MODULES="lzo-rle zram fuse" \
    GUEST_PROGRAMS="bash file ps pgrep perf" \
    GUEST_APPEND="damo_pace=${DAMO_PACE:-1} damo_turns=${DAMO_TURNS:-5} ${DAMO_STEPS:+damo_steps=$DAMO_STEPS}" \
    tests/guest/guest.sh 6.12 ${*:-$all}
