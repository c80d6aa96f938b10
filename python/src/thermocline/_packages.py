"""Imports optional packages."""

from __future__ import annotations

import importlib
from typing import Any

from ._errors import Error

# The extra of this package that brings a package.
_EXTRAS = {"pandas": "pandas", "polars": "polars", "matplotlib.pyplot": "plot", "numpy": "plot"}


def need(name: str) -> Any:
    """Imports the optional package `name`.

    Raises `Error` with the command that installs the package if it is missing. A package that is there but
    fails to import gives its own exception.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        if error.name != package:
            raise
        extra = _EXTRAS[name]
        raise Error(
            f"{package} is not installed: run  pip install 'thermocline[{extra}]'  or  pip install {package}"
        ) from None
