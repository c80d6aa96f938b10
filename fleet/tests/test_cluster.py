"""A standalone cluster: both workers read, one is killed in the middle, and the report is the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fleet
import thermocline_fleet as tf
from alike import assert_alike
from standalone import HOME, Cluster, free_port, read_json, wait_for
from thermocline_fleet._report import make_report

pytestmark = pytest.mark.cluster
PACKAGE = Path(__file__).parents[1]
FILES = 240


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if shutil.which("java") is None:
        pytest.skip("there is no java: Spark needs Java 17 or newer")
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.stop()


def submit(cluster: Cluster, folder: Path, ui_port: int) -> subprocess.Popen[str]:
    """The report by spark-submit, with a task for each file: so the job has a middle."""
    archive = cluster.folder / "package.zip"
    with zipfile.ZipFile(archive, "w") as package:
        for source in (PACKAGE / "src").rglob("*.py"):
            package.write(source, source.relative_to(PACKAGE / "src"))
    options = {
        "spark.ui.port": str(ui_port),
        "spark.thermocline.filesPerTask": "1",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.host": "127.0.0.1",
    }
    command = [str(HOME / "bin" / "spark-submit"), "--master", cluster.master, "--executor-memory", "512m"]
    for key, value in options.items():
        command += ["--conf", f"{key}={value}"]
    command += ["--py-files", str(archive), str(PACKAGE / "spark_submit.py")]
    # The master of spark-submit wins.
    command += ["report", "--in", str(folder), "--json", "--master", "local[1]"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    with (cluster.folder / "driver.log").open("wb") as log:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)


def is_in_the_middle(ui_port: int) -> bool:
    """Whether both executors have read files, and files remain to be read."""
    base = f"http://127.0.0.1:{ui_port}/api/v1/applications"
    applications = read_json(base)
    if not applications:
        return False
    application = f"{base}/{applications[0]['id']}"
    stages = read_json(f"{application}/stages?status=active") or []
    reading = [
        stage
        for stage in stages
        if stage["numTasks"] == FILES and 4 <= stage["numCompleteTasks"] < FILES // 2
    ]
    executors = read_json(f"{application}/allexecutors") or []
    busy = [each for each in executors if each["id"] != "driver" and each["completedTasks"] > 0]
    return bool(reading) and len(busy) == 2


def test_killed_worker_changes_no_result(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    files = fleet.write(tmp_path / "in", fleet.hosts(24), 10)
    assert len(files) == FILES
    os.truncate(files[7], 1000)
    whole = tf.Fleet(spark, tf.Reading(str(tmp_path / "in")))
    expected = json.loads(json.dumps(make_report(whole, tf.Question()).json))
    whole.close()
    ui_port = free_port()
    with submit(cluster, tmp_path / "in", ui_port) as driver:
        processes = [*cluster.processes, driver]
        wait_for("the middle of the job", lambda: is_in_the_middle(ui_port), processes)
        state = read_json(cluster.web)
        assert [app["cores"] for app in state["activeapps"]] == [2], "the job uses both workers"
        victim = cluster.workers[0]
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        others = [process for process in processes if process is not victim]
        wait_for(
            "the loss of a worker", lambda: _executors_lost(ui_port) or driver.poll() is not None, others[:2]
        )
        out, _ = driver.communicate()
    log = (tmp_path / "driver.log").read_text()
    assert driver.returncode == 0, log[-3000:]
    assert "Lost executor" in log, "the worker was lost while the job ran"
    found = json.loads(out)
    assert found["files"]["reasons"] == {"truncated": 1}
    assert_alike(found, expected)


def _executors_lost(ui_port: int) -> bool:
    """Whether the driver knows that an executor is gone."""
    base = f"http://127.0.0.1:{ui_port}/api/v1/applications"
    applications = read_json(base)
    if not applications:
        return False
    executors = read_json(f"{base}/{applications[0]['id']}/allexecutors") or []
    return any(not each["isActive"] for each in executors if each["id"] != "driver")
