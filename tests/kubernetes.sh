#!/usr/bin/env bash
# Starts the container of the agent's pod in an emulated Debian 12 with control groups 2 (QEMU, software
# emulation): podman and runc get the image, and the security context, volumes and configuration of the chart.
# A process outside of the container runs in the control group of a pod, and a kubelet is played. Needs root,
# to make the machine.
# Usage: tests/kubernetes.sh
#
# IMAGE=FILE          the output of `make image` (default: the newest in TARGET_DIR/image)
# TARGET_DIR=FOLDER   the output of cargo (CARGO_TARGET_DIR, or target)
# OUT=FOLDER          where console and results are saved (default: a temporary folder)
# MACHINE_TIMEOUT=S   time limit of the machine in seconds (1800)
set -euo pipefail
cd "$(dirname "$0")/.."

target=${TARGET_DIR:-${CARGO_TARGET_DIR:-target}}
image=${IMAGE:-$(find "$target/image" -name '*.oci.tar' 2>/dev/null | sort | tail -n 1)}
[ -f "$image" ] || { echo "kubernetes: there is no image in $target/image: run  make image  first" >&2; exit 2; }
tools=$target/tools/helm
helm=${HELM:-$tools/helm}
if [ ! -x "$helm" ] || [ ! -x "$tools/python/bin/python" ]; then
    echo "kubernetes: helm is not built: run  make helm  first" >&2
    exit 2
fi
tools=$(realpath "$tools")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
out=${OUT:-$work/out}
mkdir -p "$out" "$work/test"

render() { # NAME HELM-ARGUMENT...
    local name=$1
    shift
    mkdir "$work/test/$name"
    "$helm" template agent packaging/helm/thermocline --kube-version 1.34.0 --set budget=20% "$@" >"$work/$name.yaml"
    (cd "$work/test/$name" && "$tools/python/bin/python" "$OLDPWD/tests/kubernetes/podman.py" "$name" "/tmp/test/$name" <"$work/$name.yaml")
}

render default
render names --set names.enabled=true --set names.kubeletCertificate=/etc/fake-kubelet/kubelet.crt \
    --set-json 'policies=[{"name": "web", "match": {"namespace": "shop", "label": "app=web"}}]'
render act --set-json 'policies=[{"name": "pods", "match": {"cgroup": "/**/*kubepods*/**"}, "mode": "act", "preset": "reclaim", "min_age": "20s"}]'
# Podman of Debian 12 has an older default profile than container runtimes of Kubernetes. That of docker has
# the same rules as containerd 1.7 for the calls of the agent.
profiles=$(cd "$work" && go mod download -json github.com/moby/profiles/seccomp@v0.3.0 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
cp "$profiles/default.json" "$work/test/seccomp.json"
cp tests/kubernetes/{inside.sh,kubelet.py,target.py} "$work/test/"
# The machine's process is in the pod web-… of this list, with another ID of the container.
sed "s/containerd:\/\/a\{64\}/containerd:\/\/29842d5544b701dbb5ff647dba19bb4ebec821edc6ee1ffbd7aeee58fa5038fd/" \
    crates/agent/tests/pods.json >"$work/test/pods.json"
cp "$image" "$work/test/image.oci.tar"
truncate -s 200M "$work/test.img"
mke2fs -q -t ext4 -L test -d "$work/test" "$work/test.img"

machine=$(tests/packages/machine.sh bookworm kubernetes podman runc python3 openssl)
echo "kubernetes: booting Debian bookworm; console: $out/kubernetes.console" >&2
tests/packages/boot.sh "$machine" "$work/test.img" "$out/kubernetes"
echo "kubernetes: all checks passed"
