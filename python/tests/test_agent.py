"""The client of the agent's API, against an agent with made-up figures."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args, get_type_hints, is_typeddict

import pytest

import thermocline
from thermocline import _connection, _events, api

Start = Callable[..., str]


@pytest.fixture
def start(fake_agent: str) -> Iterator[Start]:
    """Starts an agent for which two minutes have passed. Returns the address of its port, if it has one."""
    with ExitStack() as ends:

        def run(*arguments: str) -> str:
            command = [fake_agent, "--age=120", "--second=50", *arguments]
            process = ends.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            ends.callback(process.terminate)
            assert process.stdout is not None
            # It prints the address of its port, if it has one.
            return process.stdout.readline().strip()

        yield run


@pytest.fixture
def agent(start: Start, tmp_path: Path) -> thermocline.Agent:
    """An agent at a UNIX socket, with admin rights. The port only tells that it listens."""
    path = tmp_path / "agent.sock"
    start(f"--socket={path}", "--listen=127.0.0.1:0")
    return thermocline.Agent(f"unix:{path}")


def test_answers_have_documented_types(agent: thermocline.Agent) -> None:
    target = agent.targets()[0]["name"]
    answers: list[tuple[Any, Any]] = [
        (agent.targets(), list[api.Target]),
        (agent.policies(), list[api.Policy]),
        (agent.decisions(), list[api.Decision]),
        (agent.ledger(), api.Ledger),
        (agent.status(), api.Status),
        (agent.explain(agent.targets()[0]["pids"][0]), api.Explanation),
        (agent.history(target, columns=3), list[api.Point]),
        (agent.heatmap(target, columns=3, rows=4), api.Heatmap),
    ]
    for answer, kind in answers:
        assert answer
        check(answer, kind)


def check(value: Any, kind: Any) -> None:
    """Checks a value of JSON against the type that this module gives it."""
    if is_typeddict(kind):
        hints = get_type_hints(kind)
        assert value.keys() == hints.keys()
        for name, hint in hints.items():
            check(value[name], hint)
    elif getattr(kind, "__origin__", None) is list:
        for item in value:
            check(item, get_args(kind)[0])
    elif str(kind).startswith("typing.Literal"):
        assert value in get_args(kind)
    elif get_args(kind):
        first, none = get_args(kind)
        assert none is type(None)
        if value is not None:
            check(value, first)
    else:
        assert isinstance(value, (int, float) if kind is float else kind)


def test_queries_select(agent: thermocline.Agent) -> None:
    decisions = agent.decisions()
    assert len(decisions) > 1
    assert agent.decisions(after=decisions[-2]["number"])[0] == decisions[-1]
    policy = decisions[-1]["policy"]
    assert {found["policy"] for found in agent.decisions(policy=policy)} == {policy}
    name = agent.targets()[0]["name"]
    points = agent.history(name, columns=2)
    assert len(points) == 2
    later = agent.history(name, from_ms=points[-1]["time_ms"], columns=2)
    assert later[0]["time_ms"] >= points[-1]["time_ms"]
    assert len(agent.heatmap(name, columns=2, rows=3)["times_ms"]) == 2
    assert agent.advice(name)["schema"] >= 1
    assert "thermo_build_info" in agent.metrics()


def test_orders_change_policies(agent: thermocline.Agent) -> None:
    name = agent.policies()[0]["name"]

    def policy() -> api.Policy:
        return next(found for found in agent.policies() if found["name"] == name)

    agent.pause(name)
    assert policy()["paused"]
    agent.resume(name)
    assert not policy()["paused"]
    agent.pause()
    assert all(found["paused"] for found in agent.policies())
    agent.resume()
    assert not any(found["paused"] for found in agent.policies())
    agent.set_mode(name, "observe")
    assert policy()["mode"] == "observe"
    agent.reload()


def test_stream_begins_with_now_and_goes_on(agent: thermocline.Agent) -> None:
    stream = agent.stream(after=0)
    first, second, third = next(stream), next(stream), next(stream)
    assert (first["event"], second["event"], third["event"]) == ("targets", "policies", "decision")
    assert first["event"] == "targets"
    check(first["data"], api.Targets)
    check(second["data"], api.Policies)
    check(third["data"], api.Decision)
    later = next(event for event in stream if event["event"] == "targets")
    assert later["data"]["time_ms"] > first["data"]["time_ms"]
    stream.close()


def test_refusal_has_reason_and_status(agent: thermocline.Agent) -> None:
    with pytest.raises(thermocline.Refused, match='there is no policy "none/x": GET') as caught:
        agent.pause("none/x")
    assert caught.value.status == 404
    with pytest.raises(thermocline.Refused, match="columns=0 is out of range: give 1 to 2000"):
        agent.history("redis", columns=0)


def test_port_needs_token(start: Start, tmp_path: Path) -> None:
    word = "0123456789abcdef0123456789abcdef"
    token = tmp_path / "token"
    token.write_text(f"{word}\n")
    token.chmod(0o600)
    address = start("--listen=127.0.0.1:0", f"--read-token={token}")
    assert thermocline.Agent(address, token=f"{word}\n").targets()
    for wrong in (None, "x"):
        with pytest.raises(thermocline.Refused) as caught:
            thermocline.Agent(address, token=wrong).targets()
        assert caught.value.status == 401


@pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl, which makes a certificate, is not installed"
)
def test_tls_checks_certificate(start: Start, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    key.chmod(0o600)
    started = start("--listen=127.0.0.1:0", f"--tls-cert={certificate}", f"--tls-key={key}")
    address = started.replace("http://", "https://")
    assert thermocline.Agent(address, ca=str(certificate)).status()["schema"] == 1
    with pytest.raises(thermocline.Error, match="cannot reach the agent at https://.*certificate"):
        thermocline.Agent(address).status()
    with pytest.raises(thermocline.Error, match="cannot read the certificates in .*key.pem"):
        thermocline.Agent(address, ca=str(key)).status()


def test_agent_that_is_not_there_is_named(tmp_path: Path) -> None:
    agent = thermocline.Agent(f"unix:{tmp_path}/none.sock")
    expected = "cannot reach the agent at unix:.*none.sock: No such file or directory. Is it running?"
    with pytest.raises(thermocline.Error, match=expected):
        agent.targets()
    with pytest.raises(thermocline.Error, match=expected):
        next(agent.stream())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b'HTTP/1.1 200 OK\r\n\r\n{"schema": 2}', "speaks version 2 of the API, and this module 1: run  pip"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "did not answer as an agent does"),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", "the answer is no object"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n<html>", "refused with status 404: is it the address of an agent"),
        (b"SSH-2.0-x\r\n", "cannot reach the agent"),
        (b"", "cannot reach the agent"),
    ],
)
def test_answer_of_another_program_is_named(answer: bytes, expected: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(thermocline.Error, match=expected):
            thermocline.Agent(f"http://127.0.0.1:{server.getsockname()[1]}").targets()
        thread.join()


def test_silent_agent_is_named_after_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(thermocline.Error, match="cannot reach the agent at .*: timed out"):
            thermocline.Agent(address, timeout_s=0.05).targets()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "unix:",
        "agent.sock",
        "ftp://h:1",
        "http://h",
        "http://:80",
        "http://h:99999",
        "http://h:1/x",
        "http://u@h:1",
    ],
)
def test_address_of_no_agent_is_refused(text: str) -> None:
    with pytest.raises(thermocline.Error, match="is not an address of an agent: give unix:PATH"):
        thermocline.Agent(text)


def test_addresses_are_sockets_ports_and_tls() -> None:
    assert (
        _connection.parse("unix:/run/a.sock").path == _connection.parse("/run/a.sock").path == "/run/a.sock"
    )
    assert _connection.parse("unix:a.sock").path == "a.sock"
    plain, tls = _connection.parse("http://[::1]:80/"), _connection.parse("https://host")
    assert (plain.host, plain.port, plain.tls) == ("::1", 80, False)
    assert (tls.host, tls.port, tls.tls) == ("host", None, True)
    assert repr(thermocline.Agent()) == "<Agent unix:/run/thermo/agent.sock>"


def test_token_of_several_lines_is_refused() -> None:
    with pytest.raises(thermocline.Error, match="the token has characters that no token has"):
        thermocline.Agent(token="a\nb")


def test_events_are_parsed_over_lines_and_comments() -> None:
    text = b": hello\n\nevent: targets\ndata: {\ndata: }\nid: 3\n\ndata:x\r\n\r\nevent: lost\n\n"
    text += b"event: unfinished\ndata: y\n"
    assert list(_events.parse(text.splitlines(keepends=True))) == [("targets", "{\n}"), ("message", "x")]


def test_types_have_all_fields_of_the_api_document(start: Start) -> None:
    address = start("--listen=127.0.0.1:0")
    document = json.loads(thermocline.Agent(address)._request("GET", "/api/v1/openapi.json"))
    schemas = document["components"]["schemas"]
    checked = 0
    for name, schema in schemas.items():
        kind = getattr(api, name, None)
        if is_typeddict(kind):
            assert set(get_type_hints(kind)) == set(schema["properties"]), name
            checked += 1
    assert checked == 19
    assert set(get_args(api.Mode)) == set(schemas["Mode"]["enum"])
