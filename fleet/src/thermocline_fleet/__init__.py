"""Cold memory of a fleet, from the files that agents of Thermocline export, on Apache Spark.

```
with thermocline_fleet.session("local[*]") as spark:
    reading = thermocline_fleet.Reading("s3://bucket/prefix", class_by="workload")
    fleet = thermocline_fleet.Fleet(spark, reading)
    hosts = thermocline_fleet.Hosts(fleet)
    thermocline_fleet.jobs.cold_memory(hosts).show()
```
"""

from __future__ import annotations

from . import jobs
from ._errors import BadInput, Error
from ._files import Reading, Reason
from ._hosts import Hosts
from ._question import Question
from ._session import session
from ._stage import FileCounts, Fleet

__all__ = [
    "BadInput", "Error", "FileCounts", "Fleet", "Hosts", "Question", "Reading", "Reason", "__version__",
    "jobs", "session",
]  # fmt: skip

__version__ = "0.1.0"
