#!/usr/bin/env bash
# What the control files cost: operations per second on the tree, damo start, and damo report access over many regions.
#
# `report access` is told apart into all of it and the reading of the tree alone, which is what the files answer for.
# Needs root, FUSE, and a damo (DAMO; from pip otherwise).
. "$(dirname "$0")/lib.bash"
need_built "$thermo"
damo=$(tests/damo/get.sh)
keep control-files "Cost of DAMON's control files" "$thermo" fs -- python3 "$PWD/benches/damonfs.py" "$damo"
