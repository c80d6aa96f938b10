#!/usr/bin/env python3
"""Compares speed, CPU time and memory of block servers. See nbd.sh.

usage: nbd.py THERMO_NBD LOAD ROUNDS SECONDS [speed|fio|burst]...
"""
import datetime
import json
import os
import platform
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

thermo_nbd, load, rounds, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
parts = sys.argv[5:] or ["speed", "fio", "burst"]
MIB = 1 << 20
TICK = os.sysconf("SC_CLK_TCK")
EXPORTS = 64
folder = tempfile.mkdtemp(prefix="nbd-bench", dir="/dev/shm")
os.makedirs(f"{folder}/many")
for number in range(EXPORTS):
    with open(f"{folder}/many/e{number}", "wb") as file:
        file.write(os.urandom(MIB) * 4)
with open(f"{folder}/disk", "wb") as file:
    file.write(os.urandom(MIB) * 256)


def processes(pid):
    """The process and all its descendants."""
    found, parents = [pid], {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
    grew = True
    while grew:
        more = [one for one, parent in parents.items() if parent in found and one not in found]
        found += more
        grew = bool(more)
    return found


def cpu(pid):
    ticks = 0
    for one in processes(pid):
        try:
            with open(f"/proc/{one}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])
    return ticks / TICK


def anon(pid):
    total = 0
    for one in processes(pid):
        try:
            with open(f"/proc/{one}/status") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("RssAnon"))
        except OSError:
            pass
    return total / 1024


class Server:
    def __init__(self, name, command, group=None, exports=("disk",)):
        self.name, self.exports = name, list(exports)
        self.socket = f"{folder}/{name}.sock"
        if os.path.exists(self.socket):
            os.remove(self.socket)
        words = [word.replace("{s}", self.socket).replace("{d}", folder) for word in command]

        def enter():
            if group:
                with open(f"{group}/cgroup.procs", "w") as file:
                    file.write(str(os.getpid()))

        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=enter)
        deadline = time.monotonic() + 60
        while not os.path.exists(self.socket):
            assert not self.process.poll() and time.monotonic() < deadline, f"{name} does not start: {words}"
            time.sleep(0.02)
        time.sleep(0.1)
        self.pid = self.process.pid
        if name == "nbd-server":  # It runs as a daemon: with -d it would serve one client at a time.
            with open(f"{folder}/nbd-server.pid") as file:
                self.pid = int(file.read())

    def stop(self):
        for one in reversed(processes(self.pid)):
            try:
                os.kill(one, signal.SIGTERM)
            except OSError:
                pass
        try:
            self.process.wait(10)
            while self.pid != self.process.pid and os.path.exists(f"/proc/{self.pid}"):
                time.sleep(0.02)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def nbd_server_config(many):
    path = f"{folder}/nbd-server-{many}.conf"
    exports = [f"e{number}" for number in range(EXPORTS)] if many else ["disk"]
    with open(path, "w") as file:
        file.write(f"[generic]\n\tunixsock = {folder}/nbd-server.sock\n\tallowlist = true\n")
        for name in exports:
            disk = f"{folder}/many/{name}" if many else f"{folder}/disk"
            file.write(f"[{name}]\n\texportname = {disk}\n\tcopyonwrite = false\n")
    return path


def servers(many):
    """Name and command of each installed server, for one disk or for many."""
    ours = [word for number in range(EXPORTS) for word in ("--export", f"e{number}={folder}/many/e{number}")] if many else ["--export", f"disk={folder}/disk"]
    found = {"thermo-nbd": [thermo_nbd, "--unix", "{s}", "--budget", "64M", "--control", f"{folder}/control"] + ours}
    if shutil.which("nbdkit"):
        found["nbdkit-file"] = ["nbdkit", "-f", "-U", "{s}", "file"] + ([f"dir={folder}/many"] if many else ["{d}/disk"])
        if not many:
            found["nbdkit-memory"] = ["nbdkit", "-f", "-U", "{s}", "memory", "256M"]
    if shutil.which("qemu-nbd") and not many:
        found["qemu-nbd"] = ["qemu-nbd", "-t", "-k", "{s}", "-f", "raw", "-e", "100", "-x", "disk", "{d}/disk"]
    if shutil.which("nbd-server"):
        found["nbd-server"] = ["nbd-server", "-C", nbd_server_config(many), "-p", "{d}/nbd-server.pid"]
    return found


JOBS = [  # name, many exports, connections, depth, block, mode
    ("1 conn 4k read qd1", False, 1, 1, 4096, "read"),
    ("1 conn 4k read qd32", False, 1, 32, 4096, "read"),
    ("1 conn 4k write qd32", False, 1, 32, 4096, "write"),
    ("4 conns 4k read qd16", False, 4, 16, 4096, "read"),
    ("1 conn 128k read qd8", False, 1, 8, 131072, "read"),
    ("1 conn 128k write qd8", False, 1, 8, 131072, "write"),
    ("64 exports 4k read qd4", True, 64, 4, 4096, "read"),
    ("64 exports 4k write qd4", True, 64, 4, 4096, "write"),
    ("64 exports 128k read qd4", True, 64, 4, 131072, "read"),
]


def first_line(client, timeout=45):
    """The result line of the load. If the load does not end in time, no request and 64 errors."""
    ready, _, _ = select.select([client.stdout], [], [], timeout)
    line = client.stdout.readline().split() if ready else []
    if not ready:
        client.kill()
    return line if len(line) == 3 else ["0", "1", "64"]


def measure(server, connections, depth, block, mode):
    before = cpu(server.pid)
    words = [load, server.socket, ",".join(server.exports), str(connections), str(depth), str(block), mode, str(seconds), "hold", "0.3"]
    client = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    requests, elapsed, errors = first_line(client)
    used, memory = cpu(server.pid) - before, anon(server.pid)
    client.wait()
    requests = int(requests)
    return {"iops": requests / float(elapsed), "us": used * 1e6 / max(requests, 1), "anon": memory, "errors": int(errors)}


def speed():
    results = {}
    for turn in range(rounds):
        for job, many, connections, depth, block, mode in JOBS:
            names = [f"e{number}" for number in range(EXPORTS)] if many else ["disk"]
            for name, command in servers(many).items():
                server = Server(name, command, exports=names)
                try:
                    result = measure(server, connections, depth, block, mode)
                finally:
                    server.stop()
                results.setdefault(job, {}).setdefault(name, []).append(result)
                print(f"round {turn + 1} {job}: {name} {result['iops']:.0f}/s {result['us']:.1f} us", file=sys.stderr)
    median = lambda runs, key: statistics.median(run[key] for run in runs)
    print("\n| job | " + " | ".join(["nbdkit-file IOPS", "server", "IOPS ratio [min-max]", "CPU us/I/O", "CPU ratio", "anon MiB", "errors"]) + " |")
    print("|---|---|---|---|---|---|---|---|")
    for job, found in results.items():
        baseline = found.get("nbdkit-file") or found["thermo-nbd"]
        for name, runs in found.items():
            ratios = sorted(run["iops"] / base["iops"] for run, base in zip(runs, baseline))
            print(f"| {job} | {median(baseline, 'iops'):.0f} | {name} | {statistics.median(ratios):.2f} [{ratios[0]:.2f}-{ratios[-1]:.2f}] | {median(runs, 'us'):.1f} | {median(runs, 'us') / max(median(baseline, 'us'), 0.01):.2f} | {median(runs, 'anon'):.1f} | {sum(run['errors'] for run in runs)} |")


def fio():
    if not shutil.which("fio"):
        print("\nfio is not installed")
        return
    print("\n| fio job | server | IOPS, median of rounds | ratio to nbdkit-file |\n|---|---|---|---|")
    for job, words in {"4k randread qd1": ["--bs=4k", "--rw=randread", "--iodepth=1"], "4k randread qd32": ["--bs=4k", "--rw=randread", "--iodepth=32"], "4k randwrite qd32": ["--bs=4k", "--rw=randwrite", "--iodepth=32"], "128k read qd8": ["--bs=128k", "--rw=read", "--iodepth=8"], "4k randread 4 jobs qd8": ["--bs=4k", "--rw=randread", "--iodepth=8", "--numjobs=4"]}.items():
        found = {}
        for _ in range(rounds):
            for name, command in servers(False).items():
                server = Server(name, command)
                try:
                    text = subprocess.run(["fio", "--name=x", "--ioengine=nbd", f"--uri=nbd+unix:///disk?socket={server.socket}", "--size=256M", "--time_based", f"--runtime={seconds:.0f}", "--group_reporting", "--output-format=json"] + words, capture_output=True, text=True, timeout=120).stdout
                finally:
                    server.stop()
                result = json.loads(text[text.index("{"):])["jobs"][0]
                found.setdefault(name, []).append(result["read"]["iops"] + result["write"]["iops"])
        for name, runs in found.items():
            baseline = found.get("nbdkit-file", runs)
            ratio = statistics.median(run / max(base, 1) for run, base in zip(runs, baseline))
            print(f"| {job} | {name} | {statistics.median(runs):.0f} | {ratio:.2f} |")


def burst():
    """64 connections, 16 in flight, 1 MiB reads, in a memory control group (version 1) of 256 MiB without swap."""
    root = "/sys/fs/cgroup/memory"
    if not os.path.exists(f"{root}/memory.limit_in_bytes"):
        print("\nSKIP: the burst needs the memory controller of cgroup v1")
        return
    own = [line.split(":")[2].strip() for line in open("/proc/self/cgroup") if ":memory:" in line][0]
    print("\n64 connections x 16 x 1 MiB reads, server in a cgroup of 256 MiB without swap (budget of thermo-nbd: 64 MiB)\n")
    print("| server | alive | requests | errors | OOM kills | peak of the cgroup MiB | anon MiB: at the end | 100 ms later | 15 ms after pressure | threads |\n|---|---|---|---|---|---|---|---|---|---|")
    for name, command in servers(False).items():
        group = f"{root}{own}/nbd-bench-{os.getpid()}"
        os.mkdir(group)
        try:
            with open(f"{group}/memory.limit_in_bytes", "w") as file:
                file.write(str(256 * MIB))
            server = Server(name, command, group)
            words = [load, server.socket, "disk", "64", "16", str(MIB), "read", "3", "hold", "2"]
            client = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            line = first_line(client)
            at_end = anon(server.pid)
            time.sleep(0.1)
            later, squeezed = anon(server.pid), "-"
            threads = sum(len(os.listdir(f"/proc/{one}/task")) for one in processes(server.pid) if os.path.exists(f"/proc/{one}/task"))
            alive = os.path.exists(f"/proc/{server.pid}") and not server.process.poll()
            if name == "thermo-nbd":
                subprocess.run([thermo_nbd, "squeeze", "--control", f"{folder}/control"], check=True, stdout=subprocess.DEVNULL)
                time.sleep(0.015)
                squeezed = f"{anon(server.pid):.1f}"
            client.wait()
            peak = int(open(f"{group}/memory.max_usage_in_bytes").read()) / MIB
            killed = next(line.split()[1] for line in open(f"{group}/memory.oom_control") if line.startswith("oom_kill "))
            print(f"| {name} | {'yes' if alive else '**no**'} | {line[0]} | {line[2]} | {killed} | {peak:.0f} | {at_end:.1f} | {later:.1f} | {squeezed} | {threads} |", flush=True)
            server.stop()
        finally:
            deadline = time.monotonic() + 20
            for one in open(f"{group}/cgroup.procs").read().split():
                os.kill(int(one), signal.SIGKILL)
            while True:
                try:
                    os.rmdir(group)
                    break
                except OSError:
                    assert time.monotonic() < deadline, f"{group} cannot be removed"
                    time.sleep(0.1)


print(f"Block servers, {datetime.date.today()}, Linux {platform.release()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} at the start")
print(f"`benches/nbd.sh {rounds} {seconds:g}`: {rounds} rounds, every server in each; storage is a file on tmpfs, unix socket. Ratios are taken within a round.")
try:
    for part in parts:
        {"speed": speed, "fio": fio, "burst": burst}[part]()
finally:
    shutil.rmtree(folder)
