#!/bin/bash
# Runs in a Debian machine of tests/kubernetes/layouts.sh: starts pods and containers as a kubelet asks
# containerd and docker for them, and podman's own, and prints the control groups of each.
# Results go to the second serial port: `ok NAME`, `not ok NAME: why`, and recordings between `=== NAME` and
# `=== end`.
cd "$(dirname "$0")" || exit 1
here=$PWD
stty -F /dev/ttyS1 raw clocal
exec 3>/dev/ttyS1 1>"$here/messages" 2>&1
# The kernel's modules are not in the machine. Containers need this one, and podman remembers that it was
# missing.
insmod overlay.ko
rm -rf /run/containers/storage /var/lib/containers/storage
# Asks containerd of the machine, or of a node that is a container of docker's. The machine is slow.
node=
crictl() { ${node:+docker exec --workdir "$here" "$node"} "$here/crictl" --runtime-endpoint unix:///run/containerd/containerd.sock --timeout 300s "$@"; }
package() { echo "$1 $(dpkg-query -W -f '${Version}' "$1")"; }
# Repeats a command until it succeeds, for at most three minutes.
wait_for() {
    local begin=$SECONDS
    until "$@"; do
        [ $((SECONDS - begin)) -lt 180 ] || { echo "gave up after 180 s: $*" >&2; return 1; }
        sleep 2
    done
}
uuid() { cat /proc/sys/kernel/random/uuid; }

# The machine's control groups as the name of a layout and as words.
case $(stat -f -c %T /sys/fs/cgroup) in
    cgroup2fs) version=v2 words="version 2" ;;
    *) if [ -d /sys/fs/cgroup/unified ]; then version=hybrid words="version 1, systemd's own 2"; else version=v1 words="version 1"; fi ;;
esac
machine="$(. /etc/os-release && echo "$PRETTY_NAME"), Linux $(uname -r), $(package systemd), control groups $words"
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")

# One recording. `pod`, `class` and `container` are what was asked for and what the runtime answered.
# `-`: none. `hidden`: the path does not show it.
record() { # NAME RUNTIME DRIVER PROCESS POD CLASS CONTAINER COMMAND...
    local name=$suite-$version-$1 content
    if content=$("${@:8}") && [ -n "$content" ]; then
        printf '=== %s\nruntime: %s\nmachine: %s\ndriver: %s\nprocess: %s\npod: %s\nclass: %s\ncontainer: %s\n\n%s\n=== end\n' \
            "$name" "$2" "$machine" "$3" "$4" "$5" "$6" "$7" "$content" >&3
        echo "ok $name" >&3
    else
        echo "not ok $name: $(tail -n 3 "$here/messages" | tr '\n' ' ')" >&3
    fi
}

# The parent that a kubelet with this driver gives for the class and UID of a pod (pkg/kubelet/cm). $root:
# where the kubelet's groups begin.
root=
parent() { # DRIVER CLASS UID
    local part path='' slice=''
    for part in $root kubepods "${2,,}" "pod$3"; do
        [ "$part" != guaranteed ] || continue
        slice+=${slice:+-}${part//-/_}
        if [ "$1" = cgroupfs ]; then path+=/$part; else path+=/$slice.slice; fi
    done
    echo "$path"
}

start_containerd() { # DRIVER
    local systemd
    systemd=$([ "$1" = systemd ] && echo true || echo false)
    cat >/etc/containerd/config.toml <<TOML
version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/sleep:1"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = $systemd
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun.options]
BinaryName = "/usr/bin/crun"
SystemdCgroup = $systemd
TOML
    systemctl restart containerd
    wait_for crictl info >/dev/null
}

# Starts a pod with the node's network, and a container in it; $uid, $container, $sandbox and $pid are theirs.
pod() { # PARENT_DRIVER CLASS [RUNTIME [UID [PID_NAMESPACE]]]
    uid=${4:-$(uuid)}
    local namespaces='{"network": 2, "pid": '${5:-1}'}'
    cat >pod.json <<JSON
{"metadata": {"name": "web", "namespace": "shop", "uid": "$uid"}, "log_directory": "$here/logs",
 "linux": {"cgroup_parent": "$(parent "$1" "$2" "$uid")", "security_context": {"namespace_options": $namespaces}}}
JSON
    cat >container.json <<JSON
{"metadata": {"name": "server"}, "image": {"image": "localhost/sleep:1"}, "log_path": "server",
 "linux": {"security_context": {"namespace_options": $namespaces}}}
JSON
    container='' sandbox='' pid=''
    sandbox=$(crictl runp --runtime "${3:-runc}" pod.json) && container=$(crictl create "$sandbox" container.json pod.json) \
        && crictl start "$container" && pid=$(crictl inspect --output go-template --template '{{.info.pid}}' "$container")
}
groups() { cat "/proc/${1:?the process did not start}/cgroup"; }

containerd_pods() { # DRIVER
    local class other runtime shim seen shown viewer
    runtime="$(package containerd), $(package runc)"
    for class in Guaranteed Burstable BestEffort; do
        pod "$1" "$class"
        record "$1-containerd-${class,,}" "$runtime" "$1" "container of a pod" "$uid" "$class" "$container" groups "$pid"
    done
    seen=$pid other=$uid viewer=$container
    record "$1-containerd-sandbox" "$runtime" "$1" "sandbox of a pod" "$uid" "$class" "$sandbox" \
        groups "$(crictl inspectp --output go-template --template '{{.info.pid}}' "$sandbox")"
    shim=$(ps -o ppid= -p "$pid")
    record "$1-containerd-shim" "$runtime" "$1" "shim of a pod" - - - groups "${shim// /}"
    pod "$1" Burstable runc "$(uuid | tr -d -)"
    record "$1-containerd-static" "$runtime" "$1" "container of a static pod" "$uid" Burstable "$container" groups "$pid"
    pod "$1" BestEffort crun
    record "$1-containerd-crun" "$(package containerd), $(package crun)" "$1" "container of a pod" "$uid" BestEffort "$container" groups "$pid"
    # From a container with the node's PIDs, which has a cgroup namespace of its own on version 2. There the
    # driver cgroupfs hides the class of pods of the same class.
    for class in BestEffort Burstable; do
        shown=BestEffort
        [ "$version $1 $class" != "v2 cgroupfs BestEffort" ] || shown=hidden
        pod "$1" "$class" runc "$(uuid)" 2
        record "$1-containerd-seen-from-${class,,}" "$runtime" "$1" "container of a BestEffort pod, read in a $class pod" \
            "$other" "$shown" "$viewer" crictl exec "$container" cat "/proc/$seen/cgroup"
    done
}

docker_pods() { # DRIVER
    local class parent id
    # No network of docker's: the kubelet makes that of pods.
    echo '{"exec-opts": ["native.cgroupdriver='"$1"'"], "bridge": "none", "iptables": false}' >/etc/docker/daemon.json
    systemctl reset-failed docker
    systemctl restart docker
    docker load --input image.tar
    docker load --input node.tar
    for class in Guaranteed Burstable BestEffort; do
        uid=$(uuid)
        parent=$(parent "$1" "$class" "$uid")
        # cri-dockerd gives docker the last part of a slice's path.
        [ "$1" = cgroupfs ] || parent=${parent##*/}
        id=$(docker run --detach --network host --cgroup-parent "$parent" localhost/sleep:1)
        record "$1-docker-${class,,}" "$(package docker.io), $(package runc)" "$1" "container of a pod" "$uid" "$class" "$id" \
            groups "$(docker inspect --format '{{.State.Pid}}' "$id")"
    done
    id=$(docker run --detach --network host localhost/sleep:1)
    record "$1-docker-alone" "$(package docker.io), $(package runc)" "$1" "container outside of pods" - - - \
        groups "$(docker inspect --format '{{.State.Pid}}' "$id")"
}

podman_pods() { # DRIVER OCI_RUNTIME
    local id pod podman=(podman --cgroup-manager "$1" --runtime "$2") runtime
    runtime="$(package podman), $(package "$2")"
    id=$("${podman[@]}" run --detach --network host localhost/sleep:1)
    record "$1-podman-$2" "$runtime" "$1" "container outside of pods of Kubernetes" - - - \
        groups "$(podman inspect --format '{{.State.Pid}}' "$id")"
    # Pods of podman 4.3 with the driver cgroupfs do not start in these machines.
    [ "$1" = systemd ] || [ "$suite" != bookworm ] || return
    pod=$("${podman[@]}" pod create --network host --infra-image localhost/sleep:1)
    id=$("${podman[@]}" run --detach --pod "$pod" localhost/sleep:1)
    record "$1-podman-$2-pod" "$runtime" "$1" "container of podman's own kind of pod" - - - \
        groups "$(podman inspect --format '{{.State.Pid}}' "$id")"
}

# Starts containerd in systemd in a container, like a node of kind, and prints the container's ID.
node() { # OPTION...
    docker run --detach --privileged --cgroupns private --network host --env container=docker --tmpfs /run --tmpfs /tmp \
        --volume /usr:/usr:ro --volume "$here/node-etc:/etc" --volume /etc/containerd:/etc/containerd \
        --volume "$here:$here" --volume /var/lib/containerd "$@" localhost/node:1
}
# The groups of the process in whose path are these words.
groups_with() { # WORD WORD
    local file
    file=$(grep -l "$1.*$2" /proc/[0-9]*/cgroup | head -n 1)
    [ -n "$file" ] && cat "$file"
}

# systemd in a container needs control groups 2. With version 1, containerd runs there alone.
nested_nodes() { # DRIVER
    local id options=()
    case "$version $1" in
        v2*) ;;
        "v1 cgroupfs") options=(--entrypoint /usr/bin/containerd) ;;
        *) return ;;
    esac
    id=$(node "${options[@]}")
    wait_for docker exec "$id" test -S /run/containerd/containerd.sock
    docker exec "$id" ctr -n k8s.io images import "$here/image.tar"
    node=$id root=kubelet
    pod "$1" Burstable
    node='' root=''
    record "$1-containerd-in-docker" "$(package containerd) in a container of $(package docker.io)" "$1" "container of a pod" \
        "$uid" Burstable "$container" groups_with "$id" "$container"
    docker rm --force "$id"
    [ "$1" = systemd ] || return
    uid=$(uuid)
    id=$(node --cgroup-parent "kubepods-burstable-pod${uid//-/_}.slice")
    record "$1-docker-systemd-inside" "$(package docker.io), $(package runc)" "$1" "service of systemd in a container of a pod" \
        "$uid" Burstable "$id" wait_for groups_with "$id" containerd.service
    docker rm --force "$id"
}

# One program as an image of its own.
mkdir -p root/bin logs
cp /bin/busybox root/bin/
ln -s busybox root/bin/sleep
ln -s busybox root/bin/cat
touch /etc/resolv.conf
tar -C root -c . | podman import --change 'ENTRYPOINT ["/bin/sleep"]' --change 'CMD ["1000000"]' - localhost/sleep:1
podman save -o image.tar localhost/sleep:1
# A container of systemd has the programs of this machine.
mkdir -p node/{proc,sys,dev,run,tmp,etc,var,root}
for name in bin sbin lib lib64; do ln -s "usr/$name" "node/$name"; done
tar -C node -c . | podman import --change 'ENTRYPOINT ["/usr/lib/systemd/systemd", "--unit=containerd.service"]' - localhost/node:1
podman save -o node.tar localhost/node:1
cp -a /etc node-etc
rm -f node-etc/fstab node-etc/systemd/system/package-test.service
for driver in systemd cgroupfs; do
    start_containerd "$driver"
    [ "$driver" != systemd ] || ctr -n k8s.io images import image.tar
    containerd_pods "$driver"
    docker_pods "$driver"
    nested_nodes "$driver"
    podman_pods "$driver" runc
done
# Now the runtime has the driver cgroupfs. A kubelet with the driver systemd above it is an error of
# configuration that works.
pod systemd BestEffort
record mixed-containerd "$(package containerd), $(package runc)" "systemd of the kubelet, cgroupfs of the runtime" \
    "container of a pod" "$uid" BestEffort "$container" groups "$pid"
podman_pods systemd crun
record containerd-service "$(package containerd)" - "service of the node" - - - groups "$(systemctl show -p MainPID --value containerd)"
cat messages >&3
echo 'the machine has finished' >&3
# An orderly end would wait for each container.
systemctl poweroff --force --force
