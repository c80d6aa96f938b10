"""The notebook of the documentation runs, and prints what it shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import thermocline
from conftest import RECORDING

NOTEBOOK = RECORDING.with_name("recording.ipynb")


def printed(cell: Any) -> str:
    return "".join(output.text for output in cell.get("outputs", []) if output.output_type == "stream")


def pictures(cell: Any) -> int:
    return sum("image/png" in output.get("data", {}) for output in cell.get("outputs", []))


@pytest.mark.filterwarnings("default")
def test_notebook_runs_and_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(thermocline.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{source}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook: Any = nbformat.reads(NOTEBOOK.read_text(), as_version=4)  # type: ignore[no-untyped-call]
    shown = [(printed(cell), pictures(cell)) for cell in notebook.cells]
    folder = {"metadata": {"path": str(NOTEBOOK.parent)}}
    NotebookClient(notebook, timeout=300, resources=folder).execute()
    assert [(printed(cell), pictures(cell)) for cell in notebook.cells] == shown
    assert sum(count for _, count in shown) == 2
