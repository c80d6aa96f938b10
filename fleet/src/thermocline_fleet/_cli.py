"""The command `thermocline-fleet`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812

from . import __version__
from ._errors import BadInput, Error
from ._files import Reading
from ._html import page
from ._question import CLASSES, Question, check_range, parse_length, parse_share, parse_time
from ._report import Report, files_json, make_report
from ._session import session
from ._stage import Fleet, choose_folders
from ._text import check_text, report_text

_EXAMPLES = """examples:
  thermocline-fleet report --in /srv/fleet --html fleet.html
  thermocline-fleet report --in 's3://fleet/prod?region=eu-west-1' --from 2026-11-01 --to 2026-11-08 --json
  thermocline-fleet check --in /srv/fleet
"""


def main(arguments: list[str] | None = None) -> int:
    """Runs the command. Returns its exit code: 0 done, 1 failed, 2 bad input."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except Error as error:
        print(f"thermocline-fleet: {error}", file=sys.stderr)
        return error.code
    except BrokenPipeError:
        # The reader of the output has gone. Python must not try to flush at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="thermocline-fleet",
        description="Cold memory of a fleet, from the files that agents export.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"thermocline-fleet {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    report = verbs.add_parser("report", help="cold memory, advice, requests and outliers by class of jobs")
    check = verbs.add_parser("check", help="count the files, and say which are set aside and why")
    for verb in (report, check):
        _add_reading(verb)
    report.add_argument(
        "--class-by", choices=CLASSES, default="workload", help="the column that names the classes"
    )
    report.add_argument(
        "--max-refaults", default="0.2%/min", help="bound, as a share of the working set [0.2%%/min]"
    )
    report.add_argument(
        "--hold", default="0.95", help="share of host-hours in which the bound must hold [0.95]"
    )
    report.add_argument(
        "--swap-cost", default="0.35", help="what a byte in swap occupies, on nodes without swap [0.35]"
    )
    report.add_argument("--headroom", default="15%", help="added to memory requests [15%%]")
    report.add_argument("--html", metavar="FILE", help="write a page for people")
    report.add_argument(
        "--tables", metavar="DIR", help="write a Parquet table for each job below this folder"
    )
    return parser


def _add_reading(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--in", dest="location", required=True, metavar="DIR", help="a folder, or a URI such as s3://…"
    )
    verb.add_argument("--from", dest="first", metavar="TIME", help="a date or an ISO time, UTC; included")
    verb.add_argument("--to", dest="last", metavar="TIME", help="a date or an ISO time, UTC; not included")
    verb.add_argument("--cluster", help="only this cluster")
    verb.add_argument(
        "--late-after", default="2d", help="files written later than this after their window are late [2d]"
    )
    verb.add_argument("--master", help="Spark's master [local[*]]; options of spark-submit win")
    verb.add_argument("--json", action="store_true", help="print JSON")


def _run(options: argparse.Namespace) -> int:
    first = None if options.first is None else parse_time(options.first, "--from")
    last = None if options.last is None else parse_time(options.last, "--to")
    check_range(first, last, (options.first, options.last))
    late = parse_length(options.late_after, "--late-after")
    if options.verb == "check":
        reading = Reading(options.location, "workload", first, last, late)
        folders = choose_folders(reading, options.cluster)
        with session(options.master) as spark:
            fleet = Fleet(spark, reading, folders)
            aside = fleet.files.where(F.col("reason").isNotNull()).select("path", "reason", "detail")
            rows = [row.asDict() for row in aside.orderBy("path").limit(100).collect()]
            found = {"schema": 1, "files": files_json(fleet), "set_aside": rows}
            print(json.dumps(found) if options.json else check_text(found))
        return 0
    question = Question(
        max_refaults=parse_share(options.max_refaults, "--max-refaults"),
        hold=parse_share(options.hold, "--hold"),
        swap_cost=parse_share(options.swap_cost, "--swap-cost"),
        headroom=parse_share(options.headroom, "--headroom", 10),
    )
    _check_outputs(options.html, options.tables)
    reading = Reading(options.location, options.class_by, first, last, late)
    # Before Spark starts: what is wrong with the location or the range is said at once.
    folders = choose_folders(reading, options.cluster)
    with session(options.master) as spark:
        fleet = Fleet(spark, reading, folders)
        report = make_report(fleet, question)
        _write(report, options)
    return 0


def _check_outputs(html: str | None, tables: str | None) -> None:
    """Raises `BadInput` for what can be known before the work."""
    if html is not None and not Path(html).resolve().parent.is_dir():
        raise BadInput(f"--html {html}: there is no folder {Path(html).resolve().parent}; make it first")
    if tables is not None and "://" not in tables and Path(tables).is_dir() and any(Path(tables).iterdir()):
        raise BadInput(
            f"--tables {tables} is not empty: choose a new folder, so that no tables of two reports mix"
        )


def _write(report: Report, options: argparse.Namespace) -> None:
    if options.tables is not None:
        # Spark would take a path without a scheme for one of its default file system.
        base = options.tables if "://" in options.tables else Path(options.tables).resolve().as_uri()
        for name, table in report.tables.items():
            table.write.parquet(f"{base.rstrip('/')}/{name}")
    if options.html is not None:
        try:
            Path(options.html).write_text(page(report.json), encoding="utf-8")
        except OSError as error:
            raise Error(
                f"cannot write --html {options.html}: {error.strerror}; choose another file"
            ) from error
    print(json.dumps(report.json) if options.json else report_text(report.json))


if __name__ == "__main__":
    sys.exit(main())
