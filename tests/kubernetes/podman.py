#!/usr/bin/env python3
"""Makes the arguments of `podman run` from the DaemonSet of the chart: its security context, volumes and environment, as a
kubelet would hand them to a container runtime.

Usage: helm template … | podman.py NAME FOLDER

NAME is that of the container. FOLDER is where the machine has the files of the volumes: agent.toml, state/ and
serviceaccount/. Writes `arguments` (one a line) and `agent.toml` into the current folder.
"""

import sys

import yaml

VALUES_OF_FIELDS = {"spec.nodeName": "worker-1", "status.hostIP": "127.0.0.1"}


def volume(mount, volumes, folder):
    source, path = volumes[mount["name"]], mount["mountPath"]
    read_only = ":ro" if mount.get("readOnly") else ""
    if "configMap" in source:
        return f"--volume={folder}/{mount['subPath']}:{path}{read_only}"
    if "hostPath" in source:
        return f"--volume={source['hostPath']['path']}:{path}{read_only}"
    if "projected" in source:
        return f"--volume={folder}/serviceaccount:{path}{read_only}"
    if source["emptyDir"].get("medium") == "Memory":
        return f"--tmpfs={path}:rw,noexec,nosuid,nodev,size=1m"
    return f"--volume={folder}/{mount['name']}:{path}{read_only}"


def arguments(pod, name, folder):
    container, = pod["containers"]
    context = container["securityContext"]
    yield f"--name={name}"
    # The chart has no host network. The kubelet that is played joins the network of the pod.
    yield "--network=none"
    yield "--cgroupns=private"
    yield f"--user={context['runAsUser']}:{context['runAsGroup']}"
    yield f"--memory={container['resources']['limits']['memory'].replace('Mi', 'm')}"
    # Which default that is, inside.sh says.
    if pod["securityContext"]["seccompProfile"] != {"type": "RuntimeDefault"}:
        sys.exit("podman.py: the pod has another seccomp profile than the default")
    if pod["hostPID"]:
        yield "--pid=host"
    if context["readOnlyRootFilesystem"]:
        yield "--read-only"
        yield "--read-only-tmpfs=false"
    if not context["allowPrivilegeEscalation"]:
        yield "--security-opt=no-new-privileges"
    for capability in context["capabilities"]["drop"]:
        yield f"--cap-drop={capability}"
    for capability in context["capabilities"]["add"]:
        yield f"--cap-add={capability}"
    for variable in container["env"]:
        yield f"--env={variable['name']}={VALUES_OF_FIELDS[variable['valueFrom']['fieldRef']['fieldPath']]}"
    volumes = {entry["name"]: entry for entry in pod["volumes"]}
    for mount in container["volumeMounts"]:
        yield volume(mount, volumes, folder)


def main():
    name, folder = sys.argv[1:]
    documents = {document["kind"]: document for document in yaml.safe_load_all(sys.stdin) if document}
    pod = documents["DaemonSet"]["spec"]["template"]["spec"]
    with open("arguments", "w", encoding="utf-8") as file:
        file.writelines(f"{argument}\n" for argument in arguments(pod, name, folder))
    with open("command", "w", encoding="utf-8") as file:
        file.writelines(f"{argument}\n" for argument in pod["containers"][0]["args"])
    with open("probe", "w", encoding="utf-8") as file:
        file.writelines(f"{word}\n" for word in pod["containers"][0]["livenessProbe"]["exec"]["command"])
    with open("agent.toml", "w", encoding="utf-8") as file:
        file.write(documents["ConfigMap"]["data"]["agent.toml"])


if __name__ == "__main__":
    main()
