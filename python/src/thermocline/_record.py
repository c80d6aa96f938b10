"""Records with the program `thermo`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from . import _program
from ._errors import Error
from ._reader import read
from ._recording import Recording

_INTERRUPTED = 130
"""The exit code of `thermo` after an orderly end by Ctrl-C."""
_POLL_S = 0.01
"""Time between two looks at whether recording has begun."""


class LiveRecording(Recording):
    """A recording that is made while a `with` block runs, and can be used after it."""

    def __init__(self, command: Sequence[str], output: Path | None, has_end: bool) -> None:
        super().__init__(None)
        self._command = list(command)
        self._output = output
        self._has_end = has_end
        self._folder: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._printed: IO[bytes] | None = None
        self.messages: tuple[str, ...] = ()
        """What `thermo` printed: warnings, and where the recording is. Known after the block."""

    def __repr__(self) -> str:
        return "<LiveRecording, not complete>" if self._contents is None else super().__repr__()

    def __enter__(self) -> Self:
        """Starts recording, and returns when it has begun. Raises `Error` if `thermo` refuses."""
        if self._process is not None:
            raise Error("this recording was made already: call thermocline.record() again")
        if self._output is None:
            self._folder = tempfile.mkdtemp(prefix="thermocline-")
            self._output = Path(self._folder, "recording.arrow")
        before = _identity(self._output)
        try:
            self._start(self._output)
            self._wait_for_begin(self._output, before)
        except BaseException:
            self._interrupt()
            self._clean_up()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Waits for the end of the duration, or ends recording, and reads the recording.

        An exception in the block ends recording at once. Raises `Error` if `thermo` failed.
        """
        try:
            if kind is not None:
                self._interrupt()
            elif self._output is not None:
                self._finish(self._output)
        finally:
            self._clean_up()

    def _start(self, output: Path) -> None:
        # A file, because a full pipe would stop the program.
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 (closed by _clean_up)
        command = [_program.find(), *self._command, f"--output={output}"]
        try:
            # In a process group of its own: Ctrl-C in a terminal reaches this program, which ends recording.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._printed,
                process_group=0,
            )
        except OSError as error:
            raise Error(f"cannot run {command[0]}: {error.strerror}; check the program") from error

    def _wait_for_begin(self, output: Path, before: tuple[int, int] | None) -> None:
        """Waits until the file of the recording is there, or `thermo` has ended."""
        process = self._running()
        while _identity(output) in (None, before):
            try:
                code = process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                continue
            if _identity(output) in (None, before) or code != 0:
                raise Error(_program.sentence(self._take_messages(), code))

    def _finish(self, output: Path) -> None:
        process = self._running()
        if self._has_end:
            try:
                process.wait()
            except BaseException:
                self._interrupt()
                raise
        else:
            self._interrupt()
        code = process.returncode
        printed = self._take_messages()
        if code != 0 and (code != _INTERRUPTED or self._has_end):
            raise Error(_program.sentence(printed, code))
        self._contents = read(output, strict=True)

    def _interrupt(self) -> None:
        """Ends recording in order: `thermo` writes its last batch."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()

    def _take_messages(self) -> str:
        if self._printed is None:
            return ""
        self._printed.seek(0)
        printed = self._printed.read().decode(errors="replace")
        self.messages = tuple(printed.splitlines())
        return printed

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise Error("recording has not begun: use it in a with block")
        return self._process

    def _clean_up(self) -> None:
        if self._printed is not None:
            self._printed.close()
            self._printed = None
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None


def record(
    pid: int | Sequence[int],
    duration: float | str | None = None,
    *,
    output: str | os.PathLike[str] | None = None,
    arguments: Sequence[str] = (),
) -> LiveRecording:
    """Records which memory processes access while a `with` block runs, with the rights of `thermo record`.

        with thermocline.record(pid, 10) as recording:
            run_load()
        recording.ages

    With a `duration` (seconds, or a text like `"2m"`), the end of the block waits until that time has passed;
    without, recording ends with the block. An exception in the block ends recording at once. The recording is
    kept in the file `output`; without, only in memory. `arguments` are further ones of `thermo record`, like
    `["--cpu", "2%"]`.

    Raises `Error` with the sentence of `thermo` if it refuses or fails.
    """
    pids = [pid] if isinstance(pid, int) else list(pid)
    command = ["record", *(f"--pid={number}" for number in pids)]
    if duration is not None:
        command.append(f"--duration={duration if isinstance(duration, str) else f'{duration:.3f}s'}")
    path = None if output is None else Path(output)
    return LiveRecording([*command, *arguments], path, duration is not None)


def _identity(path: Path) -> tuple[int, int] | None:
    """The file at `path`, if it has bytes: an existing one is renamed, so another file is there then."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found.st_size else None
