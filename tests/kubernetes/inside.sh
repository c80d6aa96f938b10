#!/bin/bash
# Runs in an emulated Debian machine, with the image and the configurations of tests/kubernetes.sh: starts the
# agent's container with podman and runc as the chart describes it, beside a process in the control group of a
# pod, and checks what it sees.
# Result lines go to the second serial port: `ok NAME`, `not ok NAME: why`, `# remark`.
cd "$(dirname "$0")" || exit 1
here=$PWD
stty -F /dev/ttyS1 raw clocal
exec >/dev/ttyS1 2>&1

uid=0a1b2c3d-1111-2222-3333-444455556666
id=29842d5544b701dbb5ff647dba19bb4ebec821edc6ee1ffbd7aeee58fa5038fd
slice=kubepods-burstable-pod${uid//-/_}.slice
group=/kubepods.slice/kubepods-burstable.slice/$slice/cri-containerd-$id.scope

check() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$here/output" 2>&1; then
        echo "ok $name"
    else
        echo "not ok $name: $(tail -n 4 "$here/output" | tr '\n' ' ')"
    fi
}

# Repeats a command until it succeeds, for at most three minutes.
wait_for() {
    local begin=$SECONDS
    until "$@"; do
        [ $((SECONDS - begin)) -lt 180 ] || { echo "gave up after 180 s: $*"; return 1; }
        sleep 2
    done
}

# The default profile of docker. That of podman 4.3 has no rule for CAP_BPF yet.
options=(--security-opt "seccomp=$here/seccomp.json" --security-opt apparmor=unconfined)

start() { # NAME [ARGUMENT...]
    local name=$1 arguments command
    shift
    mapfile -t arguments <"$name/arguments"
    mapfile -t command <"$name/command"
    mkdir -p "$here/$name/state"
    podman run --detach --runtime runc "${arguments[@]}" "$@" "$image" "${command[@]}"
}

in_container() { # NAME COMMAND...
    local name=$1
    shift
    podman exec "$name" /usr/bin/thermo "$@"
}

# Whether a Python expression holds of the status: `targets` by name, `status`.
holds() { # NAME EXPRESSION
    in_container "$1" agent status --json >"$here/status.json" || return 1
    python3 - "$here/status.json" "$2" <<'PYTHON'
import json, sys
with open(sys.argv[1]) as file:
    answer = json.load(file)
targets = {target["name"]: target for target in answer["targets"]}
status = answer["status"]
if not eval(sys.argv[2]):
    sizes = ("policy", "pids", "resident_bytes", "unknown_bytes", "working_set_bytes")
    print({name: {size: target[size] for size in sizes} for name, target in targets.items()}, status)
    sys.exit(1)
PYTHON
}

ledger_holds() { # NAME EXPRESSION
    in_container "$1" agent ledger --json >"$here/ledger.json" || return 1
    python3 - "$here/ledger.json" "$2" <<'PYTHON'
import json, sys
with open(sys.argv[1]) as file:
    ledger = json.load(file)
text = json.dumps(ledger)
if not eval(sys.argv[2]):
    print(text)
    sys.exit(1)
PYTHON
}

process_of() { podman inspect --format '{{.State.Pid}}' "$1"; }
status_has() { # NAME LINE
    grep -Eq "$2" "/proc/$(process_of "$1")/status" || { grep -E 'Cap|Priv|Secc' "/proc/$(process_of "$1")/status"; return 1; }
}
end() { podman rm --force --time 20 "$1" >/dev/null 2>&1; }

echo "# Linux $(uname -r), $(podman --version), $(runc --version | head -n 1)"
check "control groups are version 2" test -e /sys/fs/cgroup/cgroup.controllers
check "podman reads the image" podman load --input image.oci.tar
image=$(podman images --format '{{.Id}}' | head -n 1)
echo "# $(podman images --format '{{.Repository}}:{{.Tag}} {{.Size}}')"

systemd-run --quiet --scope --slice="$slice" --unit="cri-containerd-$id.scope" --uid=nobody python3 "$here/target.py" &
target() { pgrep -f -u nobody "$here/target.py"; }
wait_for target >/dev/null
check "the process is in the group of a pod" grep -qx "0::$group" "/proc/$(target)/cgroup"

# The chart's defaults: five capabilities, no names.
check "default: the container starts" start default "${options[@]}"
check "default: the agent answers" wait_for in_container default agent status
# CAP_SYS_PTRACE 19, SYS_NICE 23, SYSLOG 34, PERFMON 38, BPF 39.
check "default: no capability beyond the five" status_has default '^CapBnd:\s+000000c400880000$'
check "default: no new privileges" status_has default '^NoNewPrivs:\s+1$'
check "default: seccomp filters" status_has default '^Seccomp:\s+2$'
check "default: the root is read-only" grep -q ' / ro,\| / .* ro,' "/proc/$(process_of default)/mountinfo"
echo "# default: $(podman exec default /usr/bin/thermo doctor | grep '^  pte')"
check "default: page tables are read" wait_for holds default 'status["tracker"] == "pte"'
check "default: the process is seen by its container" wait_for holds default \
    'targets[status and "'"${id:0:12}"'"]["resident_bytes"] > 64 << 20'
check "default: its memory is known" wait_for holds default \
    'targets["'"${id:0:12}"'"]["unknown_bytes"] < targets["'"${id:0:12}"'"]["resident_bytes"] / 2'
explains() { # NAME TEXT...
    local name=$1 text
    in_container "$name" agent explain "$(target)" >"$here/explanation" || return 1
    shift
    for text in "$@"; do
        grep -qF "$text" "$here/explanation" || { echo "no $text:"; cat "$here/explanation"; return 1; }
    done
}
check "default: explain has the UID of the pod" explains default "$uid" Burstable
echo "# default: $(tr '\n' ';' <"$here/explanation")"
mapfile -t probe <default/probe
check "default: the probe succeeds" podman exec default "${probe[@]}"
echo "# default: $(podman logs default 2>&1 | tail -n 3 | tr '\n' ' ')"
end default

# Names, from a kubelet that the test plays in the network of the pod.
mkdir -p names/serviceaccount /etc/fake-kubelet
echo a-token-of-the-test >names/serviceaccount/token
cp names/serviceaccount/token pods.json /etc/fake-kubelet/
printf '[req]\ndistinguished_name=name\nx509_extensions=more\n[name]\n[more]\nbasicConstraints=critical,CA:FALSE\nsubjectAltName=DNS:worker-1\n' >openssl.cnf
check "openssl makes the kubelet's certificate" openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
    -subj /CN=worker-1 -config openssl.cnf -keyout /etc/fake-kubelet/kubelet.key -out /etc/fake-kubelet/kubelet.crt
check "names: the container starts" start names "${options[@]}"
check "names: the agent answers" wait_for in_container names agent status
check "names: the missing kubelet is warned of" wait_for holds names 'any("cannot reach the kubelet" in one for one in status["warnings"])'
check "names: the process has no policy yet" holds names 'not targets'
nsenter --target "$(process_of names)" --net python3 "$here/kubelet.py" /etc/fake-kubelet &
kubelet=$!
check "names: the process is matched by namespace and label" wait_for holds names \
    'targets["shop/web/server"]["policy"] == "web" and targets["shop/web/server"]["resident_bytes"] > 64 << 20'
check "names: the warning is gone" holds names 'not any("kubelet" in one for one in status["warnings"])'
check "names: one request listed the node" test "$(cat /etc/fake-kubelet/requests)" = "/pods with token"
check "names: explain has namespace, pod, workload and container" explains names shop web-7d4b9c6f5d-x2k8p server
echo "# names: $(tr '\n' ';' <"$here/explanation")"
kill "$kubelet"
end names

# A policy that acts has three capabilities more.
fallocate -l 256M /swapfile && chmod 600 /swapfile && mkswap -q /swapfile && swapon /swapfile
check "act: the container starts" start act "${options[@]}"
check "act: the agent answers" wait_for in_container act agent status
# CAP_DAC_READ_SEARCH 2, FOWNER 3, IPC_LOCK 14.
check "act: no capability beyond the eight" status_has act '^CapBnd:\s+000000c40088400c$'
is_paged_out() { [ "$(awk '/^VmSwap/ { print $2 }' "/proc/$(target)/status")" -gt 16384 ]; }
check "act: idle memory is paged out" wait_for is_paged_out
check "act: the ledger has it" wait_for ledger_holds act '"pageout" in text'
echo "# act: $(grep -E 'VmRSS|VmSwap' "/proc/$(target)/status" | tr '\n\t' '  ')"
end act

# The default profile of AppArmor: only a remark, because runtimes differ.
if start default "${options[@]:0:2}" >/dev/null 2>"$here/output" && wait_for in_container default agent status >/dev/null 2>&1; then
    holds default 'True' >/dev/null
    echo "# AppArmor's default profile $(cat "/proc/$(process_of default)/attr/current"): tracker $(python3 -c 'import json, sys; answer = json.load(open(sys.argv[1])); print(answer["status"]["tracker"] or "none", [target["name"] for target in answer["targets"]], answer["status"]["warnings"])' "$here/status.json")"
else
    echo "# AppArmor's default profile: the container did not start: $(tail -n 1 "$here/output")"
fi
end default
# The default profile of this podman.
start default "${options[@]:2:2}" >/dev/null 2>&1
echo "# podman's default profile of seccomp: $(podman exec default /usr/bin/thermo doctor | grep '^  pte')"
end default
kill "$(target)"
echo 'the machine has finished'
