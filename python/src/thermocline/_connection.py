"""Connections to the agent: HTTP over its UNIX socket or a port, with TLS for `https://`."""

from __future__ import annotations

import http.client
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from ._errors import Error


@dataclass(frozen=True)
class Address:
    """Where an agent listens: a UNIX socket at `path`, or a port."""

    text: str
    path: str | None
    host: str
    port: int | None
    tls: bool


def parse(text: str) -> Address:
    """Parses `unix:PATH`, `/PATH`, `http://HOST:PORT` or `https://HOST[:PORT]`. Raises `Error` on others."""
    if text.startswith("/") or (text.startswith("unix:") and len(text) > len("unix:")):
        return Address(text, text.removeprefix("unix:"), "localhost", None, False)
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    else:
        tls = url.scheme == "https"
        has_rest = url.path not in ("", "/") or url.query or url.fragment or url.username is not None
        if host and not has_rest and (tls or (url.scheme == "http" and port is not None)):
            return Address(text, None, host, port, tls)
    raise Error(
        f"{text!r} is not an address of an agent: give unix:PATH of its socket, http://127.0.0.1:PORT or "
        "https://HOST:PORT"
    )


def connect(address: Address, timeout_s: float, ca: str | None) -> http.client.HTTPConnection:
    """A connection, not open yet. `ca` is a file with the certificates to check that of the agent by."""
    if address.path is not None:
        return _UnixConnection(address.path, timeout_s)
    if address.tls:
        context = ssl.create_default_context(cafile=ca)
        return http.client.HTTPSConnection(address.host, address.port, timeout=timeout_s, context=context)
    return http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except BaseException:
            self.sock.close()
            raise
