"""The jobs. Each function returns a DataFrame; `thermocline-fleet report --tables` writes all of them."""

from .advice import advice, curve
from .cold import cold_memory, refaults
from .outliers import drift, outliers
from .policies import agents, policies
from .requests import requests

__all__ = [
    "advice",
    "agents",
    "cold_memory",
    "curve",
    "drift",
    "outliers",
    "policies",
    "refaults",
    "requests",
]
