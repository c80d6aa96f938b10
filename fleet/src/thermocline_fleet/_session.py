"""The Spark session: the one of spark-submit, or one of this process."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ._errors import BadInput, Error
from ._store import sentence_of

DEFAULT_MASTER = "local[*]"


@contextmanager
def session(master: str | None = None) -> Iterator[SparkSession]:
    """A Spark session that ends with the context. Options of spark-submit win over `master`.

    Raises `BadInput` if Java or the master is missing. Inside, errors of Spark become `Error`.
    """
    with tempfile.TemporaryDirectory(prefix="thermocline-fleet-") as folder:
        spark = _start(master)
        try:
            with readable_errors():
                # Executors of a cluster need not have this package, only pyarrow and numpy. With --py-files,
                # Spark has sent it already.
                if Path(__file__).is_file():
                    spark.sparkContext.addPyFile(str(_archive(Path(folder))))
                yield spark
        finally:
            spark.stop()


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turns errors of Spark into `Error` with one sentence."""
    try:
        yield
    except (PySparkException, _java_errors()) as error:
        raise _readable(error) from error


def _start(master: str | None) -> SparkSession:
    # Executors on this machine use this Python. On other machines, its path may not exist.
    builder = SparkSession.builder.appName("thermocline-fleet")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise BadInput("Spark needs Java 17 or newer, and there is no java: install it, or set JAVA_HOME")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        chosen = master or SparkConf().get("spark.master") or os.environ.get("MASTER") or DEFAULT_MASTER
        if not re.match(r"local|spark://|k8s://|yarn|mesos://", chosen):
            raise BadInput(
                f"--master {chosen} is not a master: write local[4], spark://HOST:7077, yarn or k8s://…"
            )
        log = (Path(__file__).parent / "log4j2.properties").as_uri()
        builder = builder.master(chosen).config(
            "spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log}"
        )
        if chosen.startswith("local"):
            builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    try:
        return builder.getOrCreate()
    except (PySparkException, _java_errors()) as error:
        raise Error(f"Spark does not start: {_first_line(error)}; check --master and the options") from error


def _java_errors() -> type[BaseException]:
    from py4j.protocol import Py4JError

    errors: type[BaseException] = Py4JError
    return errors


def _readable(error: BaseException) -> Error:
    """The sentence of an executor's error, or the first line of Spark's own."""
    text = str(error)
    if (sentence := sentence_of(text)) is not None:
        return Error(sentence)
    return Error(f"Spark gave up, and there is no result: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Py4J puts its own line before the error.
    told = next(
        (line for line in lines if "calling" not in line), lines[0] if lines else type(error).__name__
    )
    return told[:300].rstrip(".:")


def _archive(folder: Path) -> Path:
    """This package as an archive that Python imports from."""
    package = Path(__file__).parent
    path = folder / "thermocline_fleet.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for source in sorted(package.rglob("*.py")):
            archive.write(source, source.relative_to(package.parent))
    return path
