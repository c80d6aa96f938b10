#!/usr/bin/env bash
# Speed of the control files: operations per second on the tree, damo start, and damo report access with many
# regions.
#
# Prints the time of `damo report access`, and the time of reading the tree alone, which depends only on the
# files. Needs root, FUSE, and damo (DAMO=PROGRAM; otherwise it is installed with pip).
. "$(dirname "$0")/lib.bash"
need_built "$thermo"
damo=$(tests/damo/get.sh)
keep control-files "Cost of DAMON's control files" "$thermo" fs -- python3 "$PWD/benches/damonfs.py" "$damo"
