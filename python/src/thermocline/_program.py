"""Finds the program `thermo`, and takes its error from what it printed."""

from __future__ import annotations

import os
import shutil
from importlib import metadata

from ._errors import Error

NAME = "thermo"
VARIABLE = "THERMO"
"""The environment variable with the path of the program."""


def find() -> str:
    """The path of `thermo`: the one of this wheel, else `$THERMO`, else the first one in `PATH`.

    Raises `Error` if there is none, or if `$THERMO` is not a program.
    """
    if (installed := _of_wheel()) is not None:
        return installed
    if given := os.environ.get(VARIABLE):
        if (found := shutil.which(given)) is None:
            raise Error(f"{VARIABLE} is {given}, which is not a program: set it to the path of thermo")
        return found
    if (found := shutil.which(NAME)) is None:
        raise Error(
            "the program thermo is not found: install the wheel of thermocline, or set "
            f"{VARIABLE} to its path"
        )
    return found


def _of_wheel() -> str | None:
    try:
        files = metadata.files("thermocline") or []
    except metadata.PackageNotFoundError:
        return None
    paths = (str(file.locate()) for file in files if file.name == NAME)
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def sentence(printed: str, code: int) -> str:
    """The error of a program that ended with this exit code, from its standard error."""
    lines = printed.splitlines()
    own = [line.removeprefix(f"{NAME}: ") for line in lines if line.startswith(f"{NAME}: ")]
    # Wrong arguments give a paragraph that begins so.
    usage = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    for found in (usage[:1], own[-1:]):
        if found:
            return found[0]
    if code < 0:
        return f"thermo was ended by signal {-code} before the recording was complete: record again"
    return f"thermo ended with exit code {code} and gave no reason: run it in a terminal to see more"
