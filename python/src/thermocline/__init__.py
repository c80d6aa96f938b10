"""Thermocline in Python: recordings of `thermo` as Arrow tables, recording, and the API of the agent.

```
recording = thermocline.open("thermo.arrow")
recording.ages.to_pandas()

with thermocline.record(4242, 10) as recording:
    run_load()
recording.heatmap()

thermocline.Agent("unix:/run/thermo/agent.sock").targets()
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._errors import Error, Refused, TruncatedWarning
from ._recording import Recording, TableName, open

if TYPE_CHECKING:
    from ._agent import Agent
    from ._record import LiveRecording, record

__all__ = [
    "Agent",
    "Error",
    "LiveRecording",
    "Recording",
    "Refused",
    "TableName",
    "TruncatedWarning",
    "__version__",
    "open",
    "record",
]

__version__: str

# Imported when they are first used: most programs need only one part.
_LATER = {"Agent": "_agent", "LiveRecording": "_record", "record": "_record"}

# Checkers of types would take any name for one of the module.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib import metadata

            return metadata.version("thermocline")
        if name in _LATER:
            from importlib import import_module

            return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
