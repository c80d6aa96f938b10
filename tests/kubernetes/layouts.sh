#!/usr/bin/env bash
# Records /proc/PID/cgroup of containers that containerd, docker and podman start, in machines with Debian 12
# and 13 and control groups 1 and 2. The recordings replace those in crates/agent/tests/cgroups/recorded. The
# machines run on user-mode Linux, which starts containers several times faster than an emulated processor.
# Needs root, a C compiler, Go, and Debian's package user-mode-linux.
# Usage: tests/kubernetes/layouts.sh [MACHINE...]
#
# MACHINE             bookworm-v2, bookworm-v1, bookworm-hybrid, trixie-v2 (default: all)
# CRICTL=PATH         the command (default: in TARGET_DIR/tools, built there from its source if it is missing)
# TARGET_DIR=FOLDER   the output of cargo (CARGO_TARGET_DIR, or target)
# OUT=FOLDER          where consoles and results are saved (default: a temporary folder)
# MACHINE_TIMEOUT=S   time limit of a machine in seconds (1800)
set -euo pipefail
cd "$(dirname "$0")/../.."

[ $# -gt 0 ] || set -- bookworm-v2 bookworm-v1 bookworm-hybrid trixie-v2
for name in "$@"; do
    case $name in
        bookworm-v2 | bookworm-v1 | bookworm-hybrid | trixie-v2) ;;
        *) echo "layouts: unknown machine $name: use bookworm-v2, bookworm-v1, bookworm-hybrid or trixie-v2" >&2; exit 2 ;;
    esac
done
target=${TARGET_DIR:-${CARGO_TARGET_DIR:-target}}
tools=$(mkdir -p "$target/tools" && cd "$target/tools" && pwd)
command -v linux.uml >/dev/null || { echo "layouts: linux.uml is missing: install the package user-mode-linux" >&2; exit 2; }
crictl=${CRICTL:-$tools/crictl}
if [ ! -x "$crictl" ]; then
    command -v go >/dev/null || { echo "layouts: neither crictl nor Go is installed: install one, or set CRICTL=PATH" >&2; exit 2; }
    echo "layouts: building crictl, which takes minutes once" >&2
    GOBIN=$tools CGO_ENABLED=0 go install sigs.k8s.io/cri-tools/cmd/crictl@v1.34.0
fi
recorded=crates/agent/tests/cgroups/recorded
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
out=${OUT:-$work/out}
mkdir -p "$out" "$work/test" "$recorded"
gcc -O2 -shared -fPIC -o "$work/registers.so" tests/kubernetes/uml_registers.c
cp "$crictl" /usr/lib/uml/modules/*/kernel/fs/overlayfs/overlay.ko "$work/test/"
cp tests/kubernetes/record.sh "$work/test/inside.sh"
truncate -s 200M "$work/test.img"
mke2fs -q -t ext4 -L test -d "$work/test" "$work/test.img"

# The console and the results are pipes, because user-mode Linux cannot wait for files.
boot() { # ROOT_IMAGE OUT OPTIONS
    # shellcheck disable=SC2086 # several options
    TMPDIR=$work LD_PRELOAD=$work/registers.so timeout --kill-after=10 "${MACHINE_TIMEOUT:-1800}" linux.uml \
        "uml_dir=$work" "ubd0=$work/root.cow,$1" "ubd1r=$work/test.img" root=/dev/ubda rw mem=1536M selinux=0 quiet systemd.show_status=0 panic=-1 \
        con=null con0=null,fd:3 ssl=null ssl1=null,fd:1 $3 </dev/null 3> >(cat >"$2.console") 2>"$2.kernel" | cat >"$2.results" || true
    rm -f "$work/root.cow"
}

for name in "$@"; do
    packages=(containerd docker.io podman runc crun busybox-static)
    options=
    case $name in
        trixie-v2) packages+=(docker-cli) ;;
        bookworm-v1) options="systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1" ;;
        bookworm-hybrid) options="systemd.unified_cgroup_hierarchy=0" ;;
    esac
    machine=$(tests/packages/machine.sh "${name%-*}" layouts "${packages[@]}")
    echo "layouts: booting $name; console: $out/$name.console" >&2
    boot "$machine/root.img" "$out/$name" "$options"
    tr -d '\r' <"$out/$name.results" | grep -aE '^(ok|not ok) ' || true
    if ! grep -aqx 'the machine has finished' "$out/$name.results" || grep -aq '^not ok ' "$out/$name.results"; then
        echo "layouts: $name did not record everything: see $out/$name.results and $out/$name.console" >&2
        exit 1
    fi
    rm -f "$recorded/$name"-*
    awk -v folder="$recorded" '
        /^=== end$/ { close(file); file = ""; next }
        /^=== / { file = folder "/" $2; next }
        file != "" { print >file }' "$out/$name.results"
done
echo "layouts: $(find "$recorded" -type f | wc -l) recordings in $recorded"
