"""Compares results of different runs."""

from __future__ import annotations

from typing import Any

import pytest


def assert_alike(found: Any, expected: Any, where: str = "") -> None:
    """Equal, but for the last digit of rounded sums, which follow the order of the parts."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key, value in expected.items():
            assert_alike(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for nth, value in enumerate(expected):
            assert_alike(found[nth], value, f"{where}[{nth}]")
    elif isinstance(expected, float | int) and not isinstance(expected, bool):
        assert found == pytest.approx(expected, rel=2e-6, abs=1), where
    else:
        assert found == expected, where
