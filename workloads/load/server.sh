#!/usr/bin/env bash
# Starts a workload of benches/servers.bash and fills it; prints "ready", and runs until SIGTERM.
#
# Usage: server.sh WORKLOAD
# Environment: groups, the cgroup.procs files of the control groups that the server joins; its clients do not.
. "$(dirname "$0")/../../benches/lib.bash"
# shellcheck source=benches/servers.bash
. benches/servers.bash

name=${1:-}
declare -F "workload_${name//-/_}" >/dev/null || { echo "server: unknown workload ${name:-none}" >&2; exit 2; }
set_sizes full
"workload_${name//-/_}"
echo ready
# SIGTERM interrupts `wait`.
wait "$target" || true
echo "server: $name has ended: $(tail -n 3 "$work/errors")" >&2
exit 1
