"""The programs that some tests run, and the reasons of skipped tests for scripts/test.sh."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

import rows

RECORDING = Path(__file__).parents[1] / "examples" / "recording.arrow"
"""A real recording: python/examples/README.md says of what."""
SCHEMA_1 = Path(__file__).parents[2] / "crates" / "recording" / "tests" / "data" / "schema1.arrow"
"""A recording of an older thermo."""


@pytest.fixture
def thermo() -> str:
    """The program `thermo` that the environment variable THERMO names."""
    return _program("THERMO", "thermo is not built: run  make python")


@pytest.fixture
def fake_agent() -> str:
    """The agent with made-up figures, an example of crates/web."""
    return _program("THERMO_FAKE_AGENT", "fake_agent is not built: run  make python")


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A recording with every kind of row, in three batches."""
    return rows.write(tmp_path / "sample.arrow", [rows.snapshot(0), rows.events(), rows.snapshot(1)])


def _program(variable: str, reason: str) -> str:
    path = os.environ.get(variable)
    if not path:
        pytest.skip(reason)
    assert os.access(path, os.X_OK), f"{variable} is {path}, which is not a program"
    return path


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
