"""Measuring runs: metrics exactly as trec_eval computes them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from r2med.measure.names import HEADLINE, Metric, parse_metric

if TYPE_CHECKING:
    from r2med.measure.ordering import TieOrder
    from r2med.measure.scores import Scores, measure
    from r2med.runs import Run

#: Imported on first use: names and plain means need none of the libraries that measuring does.
_HOMES = {
    "Run": "r2med.runs",
    "Scores": "r2med.measure.scores",
    "TieOrder": "r2med.measure.ordering",
    "measure": "r2med.measure.scores",
}

__all__ = ["HEADLINE", "Metric", "Run", "Scores", "TieOrder", "measure", "parse_metric"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'r2med.measure' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
