"""The module imports what it needs only when it needs it, and names what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import thermocline


def run(code: str, *arguments: str) -> str:
    """Runs a program in a new interpreter. Returns what it prints."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_import_brings_no_large_package() -> None:
    large = "pyarrow pandas polars numpy matplotlib http.client ssl subprocess asyncio importlib.metadata"
    code = f"import sys; import thermocline; print([m for m in {large!r}.split() if m in sys.modules])"
    assert run(code) == "[]\n"


def test_tables_need_only_pyarrow(sample: Path) -> None:
    code = """
import sys
sys.modules.update(dict.fromkeys(["pandas", "polars", "matplotlib", "numpy"]))
import thermocline
print(len(thermocline.open(sys.argv[1]).ages))
"""
    assert run(code, str(sample)) == "8\n"


@pytest.mark.parametrize(
    ("package", "call", "extra"),
    [
        ("pandas", "to_pandas()", "pandas"),
        ("polars", "to_polars()", "polars"),
        ("matplotlib", "heatmap()", "plot"),
    ],
)
def test_missing_package_is_named_with_its_extra(sample: Path, package: str, call: str, extra: str) -> None:
    code = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.partition(".")[0])

sys.meta_path.insert(0, Missing())
import thermocline
try:
    thermocline.open(sys.argv[1]).{call}
except thermocline.Error as error:
    print(error)
"""
    assert run(code, str(sample)) == (
        f"{package} is not installed: run  pip install 'thermocline[{extra}]'  or  pip install {package}\n"
    )


def test_unknown_attribute_is_named() -> None:
    with pytest.raises(AttributeError, match="module 'thermocline' has no attribute 'absent'"):
        _ = thermocline.absent  # type: ignore[attr-defined]
