#!/usr/bin/env bash
# What the control files cost: operations per second on the tree, damo start, and damo report access over many regions.
#
# `report access` is told apart into all of it and the reading of the tree alone, which is what the files answer for.
# Needs root, FUSE, and a damo (DAMO; from the cache folder of tests/damo.sh otherwise).
. "$(dirname "$0")/lib.bash"
need_thermo
damo=${DAMO:-${XDG_CACHE_HOME:-$HOME/.cache}/thermocline/damo-3.4.3/bin/damo}
keep control-files "What DAMON's control files cost" "$thermo" fs -- python3 "$PWD/benches/damonfs.py" "$damo"
