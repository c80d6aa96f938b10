"""Thermocline in Python: recordings of `thermo` as Arrow tables.

```
recording = thermocline.open("thermo.arrow")
recording.ages.to_pandas()
recording.heatmap()
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._errors import Error, Refused, TruncatedWarning
from ._recording import Recording, TableName, open

__all__ = [
    "Error",
    "Recording",
    "Refused",
    "TableName",
    "TruncatedWarning",
    "__version__",
    "open",
]

__version__: str

# Checkers of types would take any name for one of the module.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib import metadata

            return metadata.version("thermocline")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
