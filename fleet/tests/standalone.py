"""A standalone cluster of Spark on the loopback: a master and workers, each a process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark

HOME = Path(pyspark.__file__).parent
LIMIT_S = 300.0
"""A state that is not reached in this time will not be reached."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def read_json(url: str) -> Any:
    """The JSON of a page of Spark; `None` while it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError, TimeoutError, json.JSONDecodeError):
        return None


def wait_for(what: str, state: Callable[[], Any], processes: list[subprocess.Popen[Any]]) -> Any:
    """Polls until the state is true. Fails if a process ends before, or if it takes too long."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if found := state():
            return found
        for process in processes:
            assert process.poll() is None, f"process {process.args!r} ended while waiting for {what}"
    raise AssertionError(f"{what} was not reached in {LIMIT_S:.0f} s")


class Cluster:
    """A master and two workers with one core each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.web_port = folder, free_port(), free_port()
        self.master = f"spark://127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[Any]] = []
        ports = ["--port", str(self.port), "--webui-port", str(self.web_port)]
        self._start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", *ports)
        self.web = f"http://127.0.0.1:{self.web_port}/json/"
        wait_for("the master", lambda: read_json(self.web), self.processes)
        self.workers = [self._start_worker(nth) for nth in range(2)]
        wait_for("both workers", lambda: len(self.alive()) == 2, self.processes)

    def alive(self) -> list[dict[str, Any]]:
        """The workers that the master has."""
        state = read_json(self.web) or {"workers": []}
        return [worker for worker in state["workers"] if worker["state"] == "ALIVE"]

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def _start_worker(self, nth: int) -> subprocess.Popen[Any]:
        options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", str(free_port())]
        folder = str(self.folder / f"work{nth}")
        return self._start(
            f"worker{nth}",
            "org.apache.spark.deploy.worker.Worker",
            *options,
            "--work-dir",
            folder,
            self.master,
        )

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[Any]:
        environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(HOME / "bin" / "spark-class"), main, *arguments], stdout=log, stderr=log, env=environment
            )
        self.processes.append(process)
        return process
