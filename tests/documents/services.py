"""What the documentation's command lines need: a redis-server in a control group, the agent, the daemon for
applications, a block server, and files."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True

from command_lines import blocks_of

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATIENCE = 60

AGENT = """
state_dir = "{work}/state"
[http]
socket = "{work}/agent.sock"
listen = "127.0.0.1:{port}"
[history]
every = "1s"
[[policy]]
name = "{policy}"
match = {{ command = "{comm}" }}
target_name = "{target}"
preset = "reclaim"
"""
APPS = """
[[app]]
name = "firefox"
pid = {app}
profile = "anon"
"""
EXPORTS = """
[[export]]
name = "scratch"
memory = "16M"
"""
PARAMETERS = """
cold_min_age = "1s"
quota_ms = 40
"""


class Failure(Exception):
    """A service that did not start."""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"{what} after {PATIENCE} s")
        time.sleep(0.05)


def first_block(page, language):
    with open(f"{ROOT}/{page}") as file:
        return next("\n".join(lines) + "\n" for _, found, lines in blocks_of(file.read()) if found == language)


def memory_hierarchy():
    """The folder of the memory controller's control groups."""
    root = "/sys/fs/cgroup"
    return root if os.path.exists(f"{root}/cgroup.controllers") else f"{root}/memory"


class Services:
    """Services with names of their own in the folder `work`. `names` is what the command lines call them."""

    def __init__(self, commands, work):
        self.commands, self.work, self.started, self.group = commands, work, [], None
        comm = f"docs-{os.getpid()}"
        self.names = {
            "work": work, "comm": comm, "unit": comm, "cgroup": f"/{comm}.service", "policy": "docs", "target": "docs-redis",
            "agent": f"{work}/agent.sock", "lifecycle": f"{work}/lifecycle.sock", "nbd_control": f"{work}/nbd.ctl",
            "state": f"{work}/state", "port": str(free_port()), "free": str(free_port()),
        }

    def spawn(self, *command):
        log = open(f"{self.work}/{os.path.basename(command[0])}.log", "a")
        process = subprocess.Popen(command, cwd=self.work, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.started.append(process)
        return process

    def thermo(self, *arguments):
        subprocess.run([self.commands["thermo"], *arguments], cwd=self.work, check=True, capture_output=True)

    def start(self):
        self.start_redis()
        app = self.spawn(sys.executable, "-c", "held = bytearray(8 << 20); import time; time.sleep(3600)")
        self.names["app"] = str(app.pid)
        self.write_files()
        self.thermo("record", "--pid", self.names["pid"], "--duration", "8s", "-o", "thermo.arrow")
        for copy in ("recording.arrow", "redis.arrow"):
            shutil.copyfile(f"{self.work}/thermo.arrow", f"{self.work}/{copy}")
        self.run_daemons()

    def restore_recording(self):
        """Puts the recording of the start in place of what the last command line wrote."""
        shutil.copyfile(f"{self.work}/recording.arrow", f"{self.work}/thermo.arrow")

    def run_daemons(self):
        self.spawn(self.commands["thermo"], "agent", "--config", f"{self.work}/agent.toml")
        self.spawn(self.commands["thermo"], "lifecycle", "run", "apps.toml", "--socket", self.names["lifecycle"])
        self.spawn(self.commands["thermo-nbd"], "--unix", f"{self.work}/served.sock", "--export", "a=mem:,size=1M",
                   "--control", self.names["nbd_control"])
        for path in (self.names["agent"], self.names["lifecycle"], self.names["nbd_control"]):
            wait_until(lambda: os.path.exists(path), f"no {path}")
        wait_until(self.agent_knows_redis, "the agent does not watch redis-server")

    def agent_knows_redis(self):
        status = [self.commands["thermo"], "agent", "status", "--agent", self.names["agent"]]
        return self.names["target"] in subprocess.run(status, capture_output=True, text=True, check=False).stdout

    def wait_for_history(self):
        """Waits for the first snapshot that the agent writes: it does that every 30 s."""
        report = [self.commands["thermo"], "report", "summary", "--since", "-10m", "--state-dir", self.names["state"]]
        wait_until(lambda: subprocess.run(report, capture_output=True, check=False).returncode == 0, "no history")

    def start_redis(self):
        # The kernel's name of a program is that of its file.
        server = f"{self.work}/{self.names['comm']}"
        os.symlink(shutil.which("redis-server"), server)
        path = f"{self.work}/redis.sock"
        redis = self.spawn(server, "--port", "0", "--unixsocket", path, "--save", "", "--enable-debug-command", "local")
        self.names["pid"] = str(redis.pid)
        wait_until(lambda: os.path.exists(path), "redis-server does not listen")
        cli = ["redis-cli", "-s", path, "debug", "populate", "16384", "key", "4096"]
        subprocess.run(cli, check=True, capture_output=True)
        self.group = f"{memory_hierarchy()}{self.names['cgroup']}"
        os.mkdir(self.group)
        with open(f"{self.group}/cgroup.procs", "w") as members:
            members.write(self.names["pid"])

    def write_files(self):
        def write(name, text):
            with open(f"{self.work}/{name}", "w") as file:
                file.write(text)

        write("agent.toml", AGENT.format(**self.names))
        write("apps.toml", APPS.format(**self.names))
        write("exports.toml", EXPORTS)
        write("lru-sort.toml", PARAMETERS)
        # The files that guides show, for command lines whose output is compared.
        write("guide.damos", first_block("docs/guide/schemes.md", "text"))
        write("guide.toml", first_block("docs/guide/agent.md", "toml"))
        write("old-script", "#!/bin/sh\ncat /sys/kernel/debug/damon/attrs\n")
        os.chmod(f"{self.work}/old-script", 0o755)
        for image in ("disk.img", "a.img"):
            write(image, "")
            os.truncate(f"{self.work}/{image}", 8 << 20)
        # The ready scheme files, with ages that a recording of some seconds reaches.
        os.mkdir(f"{self.work}/schemes")
        for name in os.listdir(f"{ROOT}/schemes"):
            with open(f"{ROOT}/schemes/{name}") as file:
                write(f"schemes/{name}", re.sub(r"\b\d+(m|s)\b(?=\"?,? +\"?max)", "1s", file.read()))
        for name in ("my", "count", "after-5s", "after-15s", "after-20s", "after-1m", "slowly"):
            write(f"{name}.damos", "4K max 0 0 1s max pageout\n")
        os.symlink(f"{ROOT}/workloads", f"{self.work}/workloads")
        certificate = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout",
                       "key.pem", "-out", "cert.pem"]
        if shutil.which("openssl"):
            subprocess.run(certificate, cwd=self.work, check=True, capture_output=True)

    def stop(self):
        for process in reversed(self.started):
            process.send_signal(signal.SIGTERM)
        for process in self.started:
            process.wait(PATIENCE)
        if self.group:
            wait_until(lambda: not open(f"{self.group}/cgroup.procs").read(), "the control group stays in use")
            os.rmdir(self.group)
