"""One Spark session for all tests, a made-up fleet, and the result as scripts/test.sh counts it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter
from pyspark.sql import SparkSession

import fleet
import thermocline_fleet as tf

# A Java machine for minutes of work: compiling well takes longer than it saves.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    if shutil.which("java") is None:
        pytest.skip("there is no java: Spark needs Java 17 or newer")
    with tf.session("local[2]") as spark:
        yield spark


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve hosts in two clusters, for five hours. Two of them act for the class `web`. Read only."""
    folder = tmp_path_factory.mktemp("small")
    hosts = fleet.hosts(12)
    for number in (0, 4):
        hosts[number] = fleet.with_policy(hosts[number], "web", "act", "reclaim", 90)
    fleet.write(folder, hosts, 5)
    return folder


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Prints skips and the result as the test programs of Rust do, where a skipped test counts as passed."""
    count = {name: len(found) for name, found in terminalreporter.stats.items()}
    passed = count.get("passed", 0) + count.get("skipped", 0)
    failed = count.get("failed", 0) + count.get("error", 0)
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"SKIP: {report.nodeid}: {reason.removeprefix('Skipped: ')}")
    result = "FAILED" if failed else "ok"
    terminalreporter.write_line(f"test result: {result}. {passed} passed; {failed} failed;")
