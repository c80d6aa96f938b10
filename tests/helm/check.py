"""What `scripts/helm.sh` checks of packaging/helm/thermocline. It runs with the Python that has kubernetes-validate.

Environment: HELM, the command; THERMO, the command that checks configurations, or nothing; PODMONITOR, the command of
the folder podmonitor.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHART = os.path.join(ROOT, "packaging/helm/thermocline")
UNIT = os.path.join(ROOT, "packaging/systemd/thermo-agent.service")
HELM, THERMO, PODMONITOR = os.environ["HELM"], os.environ.get("THERMO", ""), os.environ["PODMONITOR"]
VERSIONS = ["1.27", "1.30", "1.32", "1.34", "1.37"]
WATCHING = ["BPF", "PERFMON", "SYS_NICE", "SYS_PTRACE", "SYSLOG"]
ACTING = [*WATCHING, "DAC_READ_SEARCH", "FOWNER", "IPC_LOCK"]
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TLS = {"http": {"tls": {"secretName": "thermocline-tls"}}}
NAMES = {"names": {"enabled": True}}
ACT = {"name": "caches", "match": {"namespace": "shop", "label": ["app=redis", "tier"]}, "mode": "act",
       "preset": "reclaim", "min_age": "30s", "guard": {"max_stall": "5%"}}

# Sets of values by name.
VALUES = {
    "default": {},
    "names": {**NAMES, "names": {"enabled": True, "kubeletCertificate": "/var/lib/kubelet/pki/kubelet.crt"}},
    "podmonitor": {**TLS, **NAMES, "podMonitor": {"enabled": True, "serverName": "thermocline.example",
                                                  "labels": {"release": "prometheus"}},
                   "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}]}},
    "act": {**NAMES, "policies": [ACT], "guard": {"max_refaults": "1%/min", "resume_after": "5m"}},
    "persistence": {"persistence": {"enabled": True, "hostPath": "/var/lib/thermo"},
                    "tolerations": [{"operator": "Exists"}], "priorityClassName": "system-node-critical"},
    "export": {**NAMES, "export": {"enabled": True, "cluster": "prod-eu", "store": "s3://memory/fleet",
                                   "endpoint": "https://minio.example:9000", "secretName": "store"}},
    "export and persistence": {**TLS, "persistence": {"enabled": True, "hostPath": "/srv/thermo"},
                               "export": {"enabled": True, "cluster": "a", "store": "s3://a"}},
    "isolated": {"networkPolicy": {"enabled": True}, "serviceAccount": {"create": False},
                 "seLinuxOptions": {"type": "spc_t"}, "image": {"digest": "sha256:" + "a" * 64}},
}

# Values that are refused, and what the message has.
REFUSED = {
    "an unknown key": ({"speed": 1}, "speed"),
    "an unknown key of a policy": ({"policies": [{**ACT, "labels": {}}]}, "labels"),
    "an unknown condition": ({"policies": [{"name": "a", "match": {"image": "x"}}]}, "image"),
    "a policy that matches nothing": ({"policies": [{"name": "a", "match": {}}]}, "match"),
    "a mode": ({"policies": [{**ACT, "mode": "fast"}]}, "mode"),
    "a policy with nothing to do": ({"policies": [{"name": "a", "match": {"exe": "/x"}, "mode": "act"}]}, "preset"),
    "a budget without a unit": ({"budget": "1"}, "budget"),
    "no PID namespace of the node": ({"hostPID": False}, "hostPID"),
    "a port": ({"http": {"port": 99999}}, "port"),
    "a relative path": ({"persistence": {"hostPath": "var/lib"}}, "hostPath"),
    "an access": ({"names": {"access": "all"}}, "access"),
    "a text for a flag": ({"names": {"enabled": "yes"}}, "enabled"),
    "an export to nowhere": ({"export": {"enabled": True, "cluster": "a"}}, "store"),
    "an export of no cluster": ({"export": {"enabled": True, "store": "s3://a"}}, "cluster"),
    "an endpoint without TLS": ({"export": {"endpoint": "http://minio:9000"}}, "endpoint"),
    "metrics without TLS": ({"podMonitor": {"enabled": True}}, "http.tls.secretName"),
}

faults = []


def expect(holds, text):
    if not holds:
        faults.append(text)


def helm(*arguments, values=None):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values or {}, file)
        file.flush()
        return subprocess.run([HELM, *arguments, "--values", file.name], capture_output=True, text=True)


def render(values, version):
    result = helm("template", "fleet", CHART, "--namespace", "monitoring", "--kube-version", f"{version}.0", values=values)
    if result.returncode != 0:
        sys.exit(f"helm: the chart is not rendered for Kubernetes {version}: {result.stderr}")
    return [document for document in yaml.safe_load_all(result.stdout) if document]


def of_kind(documents, kind):
    return [document for document in documents if document["kind"] == kind]


def validate(documents, version, where):
    for document in documents:
        if document["kind"] == "PodMonitor":
            check_pod_monitor(document, where)
            continue
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            faults.append(f"{where}: {document['kind']}: {list(error.path)}: {error.message}")


def check_pod_monitor(monitor, where):
    """The schema belongs to the Prometheus operator: its types in Go refuse fields that they do not have."""
    if os.path.exists(PODMONITOR):
        result = subprocess.run([PODMONITOR], input=json.dumps(monitor), capture_output=True, text=True)
        expect(result.returncode == 0, f"{where}: PodMonitor: {result.stderr}")
    expect(monitor["apiVersion"] == "monitoring.coreos.com/v1", f"{where}: apiVersion of the PodMonitor")
    endpoint, = monitor["spec"]["podMetricsEndpoints"]
    expect(endpoint["scheme"] == "https" and "insecureSkipVerify" not in endpoint["tlsConfig"],
           f"{where}: the PodMonitor verifies the agent's certificate")
    expect(endpoint["authorization"]["credentials"]["key"] == "read-token", f"{where}: token of the PodMonitor")


def check_security(documents, values, where):
    daemons = of_kind(documents, "DaemonSet")
    expect(len(daemons) == 1, f"{where}: one DaemonSet")
    pod = daemons[0]["spec"]["template"]["spec"]
    container, *others = pod["containers"]
    check_uploader(container, others, values, where)
    check_token(pod, values, where)
    context = container["securityContext"]
    acts = any(policy.get("mode", "observe") != "observe" for policy in values.get("policies", []))
    properties = {
        "hostNetwork": pod.get("hostNetwork") is False,
        "hostIPC": pod.get("hostIPC") is False,
        "hostPID": pod.get("hostPID") is True,
        "no init containers": "initContainers" not in pod,
        "seccomp": pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"},
        "privileged": context["privileged"] is False,
        "privilege escalation": context["allowPrivilegeEscalation"] is False,
        "read-only root": context["readOnlyRootFilesystem"] is True,
        "dropped capabilities": context["capabilities"]["drop"] == ["ALL"],
        "added capabilities": context["capabilities"]["add"] == (ACTING if acts else WATCHING),
        "memory limit": "memory" in container["resources"]["limits"],
        "no host ports": all("hostPort" not in port for port in container.get("ports", [])),
        "probes": {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container),
    }
    for name, holds in properties.items():
        expect(holds, f"{where}: {name}")
    check_volumes(pod, container, values, where)
    check_access(documents, values, where)


def check_token(pod, values, where):
    """The token of the service account is mounted where it is needed, and in no other container."""
    expect(pod["automountServiceAccountToken"] is False, f"{where}: every container gets the token")
    needed = bool(values.get("names", {}).get("enabled"))
    volumes = {volume["name"] for volume in pod["volumes"] if "projected" in volume}
    for container in pod["containers"]:
        mounts = [mount for mount in container["volumeMounts"] if mount["name"] in volumes]
        paths = [mount["mountPath"] for mount in mounts if mount.get("readOnly")]
        wanted = [ACCOUNT] if needed and container["name"] == "agent" else []
        expect(paths == wanted and len(mounts) == len(wanted), f"{where}: tokens of {container['name']}: {paths}")


def check_uploader(agent, containers, values, where):
    """The container that has the keys of the store has no capability, a user of its own, and sees nothing but the
    agent's files. The agent lets its own user change the mode of policies."""
    expect(len(containers) == bool(values.get("export", {}).get("enabled")), f"{where}: container of the uploader")
    is_kept = values.get("persistence", {}).get("enabled")
    # Who may write to the folder of an emptyDir may replace all that is in it.
    files = ("state", "/var/lib/thermo") if is_kept else ("export", "/var/lib/thermo/export")
    for container in containers:
        context = container["securityContext"]
        properties = {
            "command": container["command"] == ["/usr/bin/thermo-upload"],
            "privileges": context["privileged"] is False and context["allowPrivilegeEscalation"] is False,
            "read-only root": context["readOnlyRootFilesystem"] is True,
            "capabilities": context["capabilities"] == {"drop": ["ALL"]},
            "user": context["runAsUser"] not in (0, agent["securityContext"]["runAsUser"]) and context["runAsNonRoot"] is True,
            # By which it removes the files.
            "group": context["runAsGroup"] == agent["securityContext"]["runAsGroup"],
            "mounts": [(mount["name"], mount["mountPath"]) for mount in container["volumeMounts"]] == [files],
            "memory limit": "memory" in container["resources"]["limits"],
        }
        for name, holds in properties.items():
            expect(holds, f"{where}: uploader: {name}")


def check_volumes(pod, container, values, where):
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    writable = {name for name, mount in mounts.items() if not mount.get("readOnly")}
    has_export = values.get("export", {}).get("enabled") and not values.get("persistence", {}).get("enabled")
    expect(writable == {"run", "state"} | ({"export"} if has_export else set()),
           f"{where}: writable volumes are {sorted(writable)}")
    expect(set(mounts) == {volume["name"] for volume in pod["volumes"]}, f"{where}: every volume is mounted")
    paths = {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    allowed = set()
    if values.get("persistence", {}).get("enabled"):
        allowed.add(values["persistence"]["hostPath"])
    if values.get("names", {}).get("kubeletCertificate"):
        allowed.add(values["names"]["kubeletCertificate"])
    expect(paths == allowed, f"{where}: folders of the node are {sorted(paths)}")
    for volume in pod["volumes"]:
        if "secret" in volume:
            expect(volume["secret"]["defaultMode"] == 0o400, f"{where}: mode of the secret")


def check_access(documents, values, where):
    roles, bindings = of_kind(documents, "ClusterRole"), of_kind(documents, "ClusterRoleBinding")
    if not values.get("names", {}).get("enabled"):
        expect(not roles and not bindings, f"{where}: no access to the API without names")
        return
    resource = "nodes/pods" if tuple(map(int, where.rsplit(" ", 1)[1].split("."))) >= (1, 33) else "nodes/proxy"
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]
    expect([role["rules"] for role in roles] == [rules], f"{where}: the role may get {resource} and nothing else")
    expect(len(bindings) == 1, f"{where}: one binding")
    expect(not of_kind(documents, "Role") and not of_kind(documents, "Secret"), f"{where}: no role and no secret")


def check_config(documents, where):
    config, = of_kind(documents, "ConfigMap")
    text = config["data"]["agent.toml"]
    if not THERMO:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "agent.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        environment = {**os.environ, "NODE_IP": "192.0.2.7", "NODE_NAME": "worker-1"}
        result = subprocess.run([THERMO, "agent", "check", path], capture_output=True, text=True, env=environment)
        expect(result.returncode == 0, f"{where}: thermo agent check: {result.stderr}{text}")


def check_unit():
    """The chart has the capabilities of the systemd unit, no more and no fewer."""
    with open(UNIT, encoding="utf-8") as file:
        line = re.search(r"^CapabilityBoundingSet=(.*)$", file.read(), re.MULTILINE)
    unit = {name.removeprefix("CAP_") for name in line[1].split()}
    expect(unit == set(ACTING), f"the unit has other capabilities than the chart: {sorted(unit ^ set(ACTING))}")


def main():
    lint = helm("lint", "--strict", CHART)
    expect(lint.returncode == 0, lint.stdout + lint.stderr)
    check_unit()
    nr_objects = 0
    for version in VERSIONS:
        for name, values in VALUES.items():
            where = f"values {name}, Kubernetes {version}"
            documents = render(values, version)
            nr_objects += len(documents)
            validate(documents, version, where)
            check_security(documents, values, where)
            if version == VERSIONS[-1]:
                check_config(documents, where)
    for name, (values, part) in REFUSED.items():
        result = helm("template", "fleet", CHART, "--kube-version", "1.37.0", values=values)
        expect(result.returncode != 0, f"{name} is not refused")
        expect(part in result.stderr, f"{name}: the message does not name {part}: {result.stderr}")
    for fault in faults:
        print(f"helm: {fault}")
    if not THERMO:
        print("SKIP: thermo is not built, so the configurations are not checked by it")
    if not os.path.exists(PODMONITOR):
        print("SKIP: Go is not installed, so the fields of the PodMonitor are not checked")
    print(f"helm: {nr_objects} objects of {len(VALUES)} sets of values for Kubernetes {', '.join(VERSIONS)}, "
          f"{len(REFUSED)} refused values, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
