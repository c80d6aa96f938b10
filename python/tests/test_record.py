"""Recording with the program thermo."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import thermocline
from thermocline import _program, _record

PROGRAM = """
import sys, time
memory = bytearray(b"x" * (8 << 20))
print("ready", flush=True)
while True:
    memory[::4096] = bytes(len(memory) // 4096)
    time.sleep(0.01)
"""


@pytest.fixture
def busy() -> Iterator[int]:
    """The process ID of a program that accesses 8 MiB over and over."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE) as program:
        try:
            assert program.stdout is not None
            program.stdout.readline()
            yield program.pid
        finally:
            program.terminate()


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in place of thermo, to fill with lines of a shell script."""
    path = tmp_path / "thermo"
    path.touch(mode=0o700)
    monkeypatch.setenv("THERMO", str(path))
    monkeypatch.setattr(_program, "_of_wheel", lambda: None)
    return path


def fill(script: Path, *lines: str) -> None:
    script.write_text("\n".join(["#!/bin/sh", "for last; do output=${last#--output=}; done", *lines, ""]))


def test_record_gives_recording_after_duration(thermo: str, busy: int) -> None:
    with thermocline.record(busy, 2, arguments=["--snapshot", "200ms"]) as recording:
        with pytest.raises(thermocline.Error, match="nothing was recorded yet: use .* after the with block"):
            _ = recording.regions
        assert repr(recording) == "<LiveRecording, not complete>"
    assert recording.truncated is None
    assert not recording.path.exists()
    assert set(recording.regions.column("pid").to_pylist()) == {busy}
    assert len(recording.snapshots) > 1
    assert any("the recording is" in message for message in recording.messages)


def test_record_without_duration_ends_with_block(thermo: str, busy: int, tmp_path: Path) -> None:
    output = tmp_path / "kept.arrow"
    with thermocline.record([busy], output=output) as recording:
        assert output.exists()
    assert recording.path == output
    assert thermocline.open(output).notes.equals(recording.notes)
    assert recording.notes.column("kind").to_pylist()[0] == "target_appeared"


def test_record_ends_at_once_when_block_fails(thermo: str, busy: int, tmp_path: Path) -> None:
    output = tmp_path / "kept.arrow"
    recording = thermocline.record(busy, "1h", output=output)
    with pytest.raises(ZeroDivisionError), recording:
        _ = 1 / 0
    # What was recorded until then is complete.
    assert thermocline.open(output).truncated is None
    with pytest.raises(thermocline.Error, match="was made already"), recording:
        pass


def test_record_into_existing_file_keeps_it_as_old(thermo: str, busy: int, sample: Path) -> None:
    before = sample.read_bytes()
    with thermocline.record(busy, output=sample):
        assert sample.read_bytes() != before
    assert sample.with_name("sample.arrow.old").read_bytes() == before


@pytest.mark.parametrize(
    ("pid", "duration", "expected"),
    [
        (2**22 + 1, 1, "4194305"),
        (os.getpid(), "1x", "invalid value '1x' for '--duration <TIME>'"),
        (os.getpid(), -1, "invalid value '-1.000s' for '--duration <TIME>'"),
    ],
    ids=["no process", "no time", "negative time"],
)
def test_refusal_of_thermo_is_the_exception(
    thermo: str, pid: int, duration: float | str, expected: str
) -> None:
    with pytest.raises(thermocline.Error, match=expected) as caught, thermocline.record(pid, duration):
        pytest.fail("recording began")
    assert "\n" not in str(caught.value)
    assert not str(caught.value).startswith(("thermo:", "error:"))


def test_failure_while_recording_is_the_exception(script: Path) -> None:
    fill(
        script,
        'echo data >"$output"',
        'echo "thermo: a warning" >&2',
        'echo "thermo: no space" >&2',
        "exit 2",
    )
    with pytest.raises(thermocline.Error, match="^no space$"), thermocline.record(1, 1):
        pass


def test_end_without_a_reason_is_named(script: Path) -> None:
    fill(script, "exit 3")
    with pytest.raises(thermocline.Error, match="exit code 3 and gave no reason"), thermocline.record(1, 1):
        pass
    fill(script, "kill -9 $$")
    with pytest.raises(thermocline.Error, match="ended by signal 9 before"), thermocline.record(1, 1):
        pass


def test_interrupt_while_waiting_ends_recording(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(
        script,
        "trap 'echo interrupted >&2; exit 130' INT",
        'echo data >"$output"',
        "while :; do sleep 0.01; done",
    )
    recording = thermocline.record(1, "1h")
    wait = subprocess.Popen.wait
    interrupts = [KeyboardInterrupt()]

    def interrupted(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if timeout is None and interrupts:
            raise interrupts.pop()
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), recording:
        pass
    assert recording._process is not None
    assert recording._process.returncode == 130


def test_arguments_are_those_of_thermo_record(script: Path, sample: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    fill(script, f'printf "%s\\n" "$@" >{given}', f'cp {sample} "$output"')
    with thermocline.record([7, 8], 1.5, output=tmp_path / "r.arrow", arguments=["--cpu", "2%"]) as recording:
        pass
    assert len(recording.snapshots) == 2
    expected = [
        "record",
        "--pid=7",
        "--pid=8",
        "--duration=1.500s",
        "--cpu",
        "2%",
        f"--output={tmp_path}/r.arrow",
    ]
    assert given.read_text().splitlines() == expected


def test_program_is_of_wheel_then_variable_then_path(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as installed:
        installed.setattr(_program, "_of_wheel", lambda: "/wheel/thermo")
        assert _program.find() == "/wheel/thermo"
    assert _program.find() == str(script)
    monkeypatch.setenv("THERMO", str(tmp_path / "none"))
    with pytest.raises(thermocline.Error, match="THERMO is .*none, which is not a program: set it to"):
        _program.find()
    monkeypatch.delenv("THERMO")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _program.find() == str(script)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(thermocline.Error, match="thermo is not found: install the wheel .* or set THERMO"):
        _program.find()


def test_program_that_cannot_run_is_named(script: Path) -> None:
    script.write_text("#!/no/such/interpreter\n")
    with (
        pytest.raises(thermocline.Error, match="cannot run .*thermo: No such file"),
        thermocline.record(1, 1),
    ):
        pass


def test_function_and_class_are_those_of_the_module() -> None:
    assert thermocline.record is _record.record
    assert thermocline.LiveRecording is _record.LiveRecording
