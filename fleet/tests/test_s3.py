"""An S3-compatible server over HTTP: its report is that of a folder, and its refusals are sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto import settings
from moto.server import ThreadedMotoServer
from pyspark.sql import SparkSession

import thermocline_fleet as tf
from alike import assert_alike
from thermocline_fleet import _cli, _session, jobs
from thermocline_fleet._stage import choose_folders

KEY, SECRET = "key", "hidden-secret"


@pytest.fixture(scope="module")
def server(small: Path) -> Iterator[str]:
    """The server's address. Its bucket `fleet` holds the files of `small` below `prod/`."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{address}",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
        config=Config(retries={"max_attempts": 1}),
    )
    client.create_bucket(Bucket="fleet")
    for path in sorted(small.rglob("*.parquet")):
        client.upload_file(str(path), "fleet", f"prod/{path.relative_to(small)}")
    yield address
    server.stop()


def location(address: str, bucket: str, secret: str = SECRET) -> str:
    store = f"region=us-east-1&scheme=http&endpoint_override={address.replace(':', '%3A')}"
    return f"s3://{KEY}:{secret}@{bucket}/prod?{store}"


def test_report_of_a_store_is_that_of_a_folder(spark: SparkSession, server: str, small: Path) -> None:
    found: list[dict[str, Any]] = []
    for uri in (str(small), location(server, "fleet")):
        whole = tf.Fleet(spark, tf.Reading(uri))
        hosts = tf.Hosts(whole)
        rows = jobs.cold_memory(hosts).orderBy("cluster", "class", "min_s").collect()
        points = jobs.curve(hosts, tf.Question()).orderBy("class", "min_s").collect()
        found.append({"counts": asdict(whole.counts), "rows": [row.asDict() for row in [*rows, *points]]})
        whole.close()
    assert found[0]["counts"]["read"] == 60
    assert_alike(found[1], found[0])


def test_wrong_credentials_are_named(
    server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # From now on the server, a thread of this process, checks credentials; it knows none.
    monkeypatch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
    code = _cli.main(["report", "--in", location(server, "fleet")])
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("thermocline-fleet: cannot list s3://fleet/prod: "), said.err
    assert said.err.endswith("; check the address and the credentials\n")
    assert said.err.count("\n") == 1
    assert SECRET not in said.err
    assert code == 1


@pytest.mark.parametrize("bucket", ["other", "fleet/none"])
def test_missing_bucket_or_folder_is_named(
    server: str, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _cli.main(["report", "--in", location(server, bucket)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"thermocline-fleet: there is no folder s3://{bucket}/prod: give the"), (
        said.err
    )


def test_store_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli.main(["check", "--in", location("127.0.0.1:9", "fleet")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("thermocline-fleet: cannot list s3://fleet/prod: ")
    assert said.endswith("; check the address and the credentials\n")
    assert SECRET not in said


def test_store_that_refuses_a_file_gives_no_partial_result(
    spark: SparkSession, server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The store has one of two folders no more when executors list them."""

    @contextmanager
    def session(master: str | None = None) -> Iterator[SparkSession]:
        with _session.readable_errors():
            yield spark

    folders = choose_folders(tf.Reading(location(server, "fleet")))
    monkeypatch.setattr(_cli, "session", session)
    monkeypatch.setattr(_cli, "choose_folders", lambda *_: [*folders[:1], _moved(folders[1])])
    assert _cli.main(["report", "--in", location(server, "fleet"), "--json"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("thermocline-fleet: cannot list other/prod/date=2026-06-01/cluster=west: "), (
        said.err
    )
    assert said.err.endswith("; check the credentials, and run again\n")
    assert SECRET not in said.err


def _moved(folder: Any) -> Any:
    """The folder in a bucket that does not exist."""
    return type(folder)(folder.path.replace("fleet/", "other/", 1), folder.date, folder.cluster)
