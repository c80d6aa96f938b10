"""The exceptions of this package. Each text is one sentence with the way out."""

from __future__ import annotations


class Error(Exception):
    """The report cannot be made: exit code 1."""

    code = 1


class BadInput(Error):
    """What was asked for makes no sense, or does not exist: exit code 2."""

    code = 2
