"""The command: its JSON, its page and its tables; and a sentence and exit code for bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import fleet
from thermocline_fleet import _cli, _session
from thermocline_fleet._html import page

SOURCES = Path(__file__).parents[1] / "src"


@pytest.fixture
def shared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command uses the session of the tests: starting one takes long."""

    @contextmanager
    def session(master: str | None = None) -> Iterator[SparkSession]:
        with _session.readable_errors():
            yield spark

    monkeypatch.setattr(_cli, "session", session)


@pytest.fixture(scope="module")
def report(spark: SparkSession, small: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of the command as another process, with a page and tables beside it."""
    out = tmp_path_factory.mktemp("out")
    command = [
        sys.executable,
        "-m",
        "thermocline_fleet",
        "report",
        "--in",
        str(small),
        "--master",
        "local[2]",
    ]
    command += ["--json", "--html", str(out / "page.html"), "--tables", str(out / "tables")]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return {"json": found, "out": out, "stderr": done.stderr}


def test_json_has_the_fields_of_the_contract(report: dict[str, Any]) -> None:
    found = report["json"]
    assert found["schema"] == 1
    assert found["files"] | {"bytes": 0} == {
        "read": 60,
        "set_aside": 0,
        "reasons": {},
        "rows": 2160,
        "bytes": 0,
    }
    assert (found["from"], found["to"]) == ("2026-06-01T00:00:00Z", "2026-06-01T05:00:00Z")
    assert {each["class"] for each in found["classes"]} == {"web", "cache", "batch", "idle"}
    assert found["agents"]["hosts"] == 12
    for each in found["classes"]:
        assert each["hosts"] == 6
        assert [age["min_s"] for age in each["idle"]][7] == 120
        shares = [age["share"] for age in each["idle"]]
        assert shares == sorted(shares, reverse=True)
        assert each["idle"][0]["bytes"] + each["unknown_bytes"] == pytest.approx(
            each["resident_bytes"], abs=2
        )
        assert sum(one["resident_bytes"] for one in each["clusters"]) == pytest.approx(
            each["resident_bytes"], abs=2
        )
        assert each["advice"]["low"] <= each["advice"]["net_saved_bytes"] <= each["advice"]["high"]
    (policy,) = found["policies"]
    assert (policy["class"], policy["policy"], policy["hosts"]) == ("web", "reclaim", 2)


def test_messages_of_spark_are_not_shown(report: dict[str, Any]) -> None:
    assert "Exception" not in report["stderr"]
    assert "WARN " not in report["stderr"]


def test_tables_hold_what_the_json_does(report: dict[str, Any]) -> None:
    tables = {path.name: pq.read_table(path) for path in sorted((report["out"] / "tables").iterdir())}
    assert list(tables) == [
        "advice", "agents", "cold_memory", "drift", "files", "min_ages", "outliers", "policies", "refaults",
        "requests",
    ]  # fmt: skip
    assert tables["files"].num_rows == 60
    advised = {row["class"]: row["min_s"] for row in tables["advice"].to_pylist()}
    assert advised == {each["class"]: each["advice"]["min_age_s"] for each in report["json"]["classes"]}


def test_page_is_whole_and_refers_to_nothing(report: dict[str, Any]) -> None:
    text = (report["out"] / "page.html").read_text()
    assert text.endswith("</body></html>\n")
    for each in report["json"]["classes"]:
        assert f"<h3>{each['class']}</h3>" in text
    for forbidden in ("<script", "src=", "<link", "@import", "url("):
        assert forbidden not in text


def test_page_escapes_names(report: dict[str, Any]) -> None:
    changed = json.loads(json.dumps(report["json"]).replace('"class": "web"', '"class": "<b>\\u001b&"'))
    changed["outliers"] = [
        {
            "node": "<i>",
            "cluster": "c",
            "class": "<b>",
            "share": 1,
            "median": 0,
            "z": 9,
            "resident_bytes": 1,
            "link": link,
        }
        for link in ("javascript:alert(1)", 'https://x/"onclick="y')
    ]
    text = page(changed)
    assert "&lt;b&gt;�&amp;" in text
    assert "<b><" not in text
    assert "<i>" not in text
    assert "javascript:" not in text
    assert 'href="https://x/&quot;onclick=&quot;y"' in text


def test_text_names_classes_and_files(shared: None, small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli.main(["report", "--in", str(small), "--cluster", "west", "--class-by", "policy"]) == 0
    text = capsys.readouterr().out
    assert "2026-06-01T00:00:00Z to 2026-06-01T05:00:00Z, clusters: west" in text
    assert "watch" in text
    assert "Files: 20 read (" in text


def test_check_counts_files(shared: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = fleet.write(tmp_path, fleet.hosts(2), 2)
    os.truncate(paths[0], 100)
    assert _cli.main(["check", "--in", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["files"]["read"], found["files"]["reasons"]) == (3, {"truncated": 1})
    assert found["set_aside"][0]["path"] == str(paths[0])
    assert _cli.main(["check", "--in", str(tmp_path)]) == 0
    assert "3 read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--cluster", "north"], "there is no cluster north in .*: choose one of east, west"),
        (
            ["--from", "2027-01-01"],
            "no files in .* days from 2026-06-01 to 2026-06-01; choose --from and --to among",
        ),
        (
            ["--from", "2026-06-02", "--to", "2026-06-01"],
            "--from 2026-06-02 is not before --to 2026-06-01: swap",
        ),
        (["--from", "2026-06-01", "--to", "2026-06-01"], "is not before"),
        (["--from", "yesterday"], "--from yesterday is not a time: write 2026-11-26"),
        (["--late-after", "soon"], "--late-after soon is not a length of time: write"),
        (["--max-refaults", "much"], "--max-refaults much is not a share: write"),
        (["--hold", "120%"], "--hold 120% is not between 0 and 100%: choose"),
        (["--hold", "nan"], "--hold nan is not between"),
        (
            ["--html", "/nowhere/page.html"],
            "--html /nowhere/page.html: there is no folder /nowhere; make it first",
        ),
        (["--tables", "/etc"], "--tables /etc is not empty: choose a new folder"),
        (["--master", "here"], "--master here is not a master: write local"),
        (["--in", "/nowhere"], "there is no folder /nowhere: give the folder"),
        (["--in", "foo://bar"], "cannot use foo://bar: .*; give a folder, or a URI of pyarrow.fs"),
        (
            ["--in", "/etc/ssl"],
            "there are no folders date=…/cluster=… in /etc/ssl: give the folder that agents",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    small: Path, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    assert _cli.main(["report", "--in", str(small), *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(f"thermocline-fleet: .*{expected}.*\n", captured.err), captured.err


def test_range_within_a_day_can_be_empty(
    shared: None, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        _cli.main(["check", "--in", str(small), "--from", "2026-06-01T12:00", "--to", "2026-06-01T13:00"])
        == 2
    )
    assert "has time in this range: choose another" in capsys.readouterr().err


def test_folder_without_files_is_named(
    shared: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "date=2026-06-01" / "cluster=east").mkdir(parents=True)
    assert _cli.main(["report", "--in", str(tmp_path)]) == 2
    assert "there are no files in" in capsys.readouterr().err
