"""The exception and the warning of this module. Each text is one sentence with the way out."""

from __future__ import annotations


class Error(Exception):
    """Something cannot be done: a recording cannot be read, a program failed, the agent does not answer."""


class Refused(Error):
    """The agent refused a request, with its reason. `status` is the status code of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class TruncatedWarning(UserWarning):
    """A recording ends before its end mark. The rows up to its last whole batch were read."""
