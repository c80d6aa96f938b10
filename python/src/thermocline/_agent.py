"""A client of the agent's HTTP API."""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator
from contextlib import closing
from typing import Any, cast
from urllib.parse import quote, urlencode

from . import _connection, _events, api
from ._errors import Error, Refused

SOCKET = "unix:/run/thermo/agent.sock"
"""Where the agent listens unless it is told otherwise."""
_MAX_ANSWER = 64 << 20
"""Maximum bytes of an answer."""
_EVENTS = {"targets", "policies", "decision"}


class Agent:
    """An agent. Each request opens a connection of its own, so an agent that restarts is found again.

    All methods raise `Error` if the agent cannot be reached or is newer, and `Refused` with the agent's
    reason if it refuses.
    """

    def __init__(
        self,
        address: str = SOCKET,
        *,
        token: str | None = None,
        ca: str | None = None,
        timeout_s: float = 45,
    ) -> None:
        """A client for the agent at `address`: `unix:PATH`, `http://127.0.0.1:PORT` or `https://HOST:PORT`.

        `token` is sent with each request. `ca` is a file with the certificate that signed that of the agent;
        without, those of the system are trusted. `timeout_s` is how long the agent may be silent; it gives
        itself 30 s for an answer. Nothing is sent yet. Raises `Error` if the address or token is none.
        """
        self._address = _connection.parse(address)
        self._token = None if token is None else token.strip()
        if self._token is not None and not (self._token.isascii() and self._token.isprintable()):
            raise Error("the token has characters that no token has: give the word in the agent's token file")
        self._ca = ca
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"<Agent {self._address.text}>"

    def targets(self) -> list[api.Target]:
        """The targets, with their idle ages, re-accesses, working set and net saving."""
        return cast("api.Targets", self._get("targets"))["targets"]

    def policies(self) -> list[api.Policy]:
        """The policies, their mode, and whether and why they are suspended."""
        return cast("api.Policies", self._get("policies"))["policies"]

    def decisions(
        self, *, target: str | None = None, policy: str | None = None, after: int | None = None
    ) -> list[api.Decision]:
        """What was done or not, and why: of a target or policy, and after the decision of this number."""
        answer = self._get("decisions", target=target, policy=policy, after=after)
        return cast("api.Decisions", answer)["decisions"]

    def ledger(self) -> api.Ledger:
        """Sums of each policy and target. They survive restarts."""
        return cast("api.Ledger", self._get("ledger"))

    def status(self) -> api.Status:
        """The agent itself: CPU, memory, tracker, warnings."""
        return cast("api.Status", self._get("status"))

    def explain(self, pid: int) -> api.Explanation:
        """Which policy has a process, and why."""
        return cast("api.Explanation", self._get("explain", pid=pid))

    def history(
        self,
        target: str,
        *,
        policy: str | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        columns: int | None = None,
    ) -> list[api.Point]:
        """A target over time, oldest first: the last hour, or the time between two Unix times."""
        answer = self._get(
            "history", target=target, policy=policy, from_ms=from_ms, to_ms=to_ms, columns=columns
        )
        return cast("api.Series", answer)["points"]

    def heatmap(
        self,
        target: str,
        *,
        policy: str | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        columns: int | None = None,
        rows: int | None = None,
    ) -> api.Heatmap:
        """The access rate of each part of a target's memory over time."""
        answer = self._get(
            "heatmap", target=target, policy=policy, from_ms=from_ms, to_ms=to_ms, columns=columns, rows=rows
        )
        return cast("api.Heatmap", answer)

    def advice(
        self, target: str, *, policy: str | None = None, from_ms: int | None = None, to_ms: int | None = None
    ) -> dict[str, Any]:
        """What paging out idle memory of a target would save and cost: the JSON of `thermo advise`."""
        return self._get("advice", target=target, policy=policy, from_ms=from_ms, to_ms=to_ms)

    def metrics(self) -> str:
        """The metrics, in the text format of Prometheus."""
        return self._request("GET", "/metrics").decode()

    def pause(self, policy: str | None = None) -> None:
        """Stops a policy, or without a name all of them, from acting. Needs the admin role."""
        self._post("pause" if policy is None else f"policies/{quote(policy, safe='')}/pause")

    def resume(self, policy: str | None = None) -> None:
        """Lets a policy, or without a name all of them, act again. Needs the admin role."""
        self._post("resume" if policy is None else f"policies/{quote(policy, safe='')}/resume")

    def set_mode(self, policy: str, mode: api.Mode) -> None:
        """Changes what a policy may do, until the agent ends or reads its configuration again. For admins."""
        self._post(f"policies/{quote(policy, safe='')}/mode", {"mode": mode})

    def reload(self) -> None:
        """Lets the agent read its configuration again. Raises `Refused` if that has a mistake. For admins."""
        self._post("reload")

    def stream(self, after: int | None = None) -> Generator[api.Event, None, None]:
        """Yields what changes, beginning with the targets and policies of now, until the agent ends.

        With `after`, the decisions after this number come first. Raises `Error` if the agent cannot be
        reached, or is silent for longer than the timeout: it sends something every 15 s.
        """
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        with closing(self._connect()) as connection:
            try:
                answer = self._send(connection, "GET", "/api/v1/stream", None, headers)
                for name, data in _events.parse(answer):
                    if name in _EVENTS:
                        yield cast("api.Event", {"event": name, "data": self._json(data.encode())})
            except (OSError, http.client.HTTPException) as error:
                raise self._unreachable(error) from error

    def _get(self, route: str, **parameters: str | int | None) -> dict[str, Any]:
        given = {name: value for name, value in parameters.items() if value is not None}
        query = f"?{urlencode(given)}" if given else ""
        return self._json(self._request("GET", f"/api/v1/{route}{query}"))

    def _post(self, route: str, body: dict[str, str] | None = None) -> None:
        self._request("POST", f"/api/v1/{route}", body)

    def _request(self, method: str, path: str, body: dict[str, str] | None = None) -> bytes:
        with closing(self._connect()) as connection:
            try:
                answer = self._send(connection, method, path, body, {})
                data = answer.read(_MAX_ANSWER + 1)
            except (OSError, http.client.HTTPException) as error:
                raise self._unreachable(error) from error
        if len(data) > _MAX_ANSWER:
            raise self._invalid(f"the answer is longer than {_MAX_ANSWER} bytes")
        return data

    def _connect(self) -> http.client.HTTPConnection:
        try:
            return _connection.connect(self._address, self._timeout_s, self._ca)
        except OSError as error:
            raise Error(f"cannot read the certificates in {self._ca}: {error}; give a PEM file") from error

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: dict[str, str] | None,
        headers: dict[str, str],
    ) -> http.client.HTTPResponse:
        """Sends a request. Returns the answer, whose body is not read yet, or raises `Refused`."""
        if self._token is not None:
            headers = {**headers, "Authorization": f"Bearer {self._token}"}
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status >= 300:
            raise Refused(self._reason(answer), answer.status)
        return answer

    def _reason(self, answer: http.client.HTTPResponse) -> str:
        try:
            return str(json.loads(answer.read(_MAX_ANSWER))["error"])
        except (ValueError, KeyError, TypeError):
            return f"{self._address.text} refused with status {answer.status}: is it the address of an agent?"

    def _json(self, data: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(data)
        except ValueError as error:
            raise self._invalid(str(error)) from error
        if not isinstance(answer, dict):
            raise self._invalid("the answer is no object")
        if answer.get("schema", 0) > api.SCHEMA:
            raise Error(
                f"the agent speaks version {answer['schema']} of the API, and this module {api.SCHEMA}: run  "
                "pip install --upgrade thermocline"
            )
        return answer

    def _invalid(self, why: str) -> Error:
        return Error(f"{self._address.text} did not answer as an agent does: {why}; check the address")

    def _unreachable(self, error: Exception) -> Error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Error(
            f"cannot reach the agent at {self._address.text}: {why}. Is it running? "
            "`systemctl status thermo-agent`"
        )
