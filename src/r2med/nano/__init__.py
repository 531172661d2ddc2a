"""NanoR2MED: build a compact task from any task, give it candidates, profile it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from r2med.nano.building import build
    from r2med.nano.candidates import add_candidates
    from r2med.nano.pool import Pool, Recipe, make_pool
    from r2med.nano.profiling import profile

_HOMES = {
    "Pool": "r2med.nano.pool",
    "Recipe": "r2med.nano.pool",
    "add_candidates": "r2med.nano.candidates",
    "build": "r2med.nano.building",
    "make_pool": "r2med.nano.pool",
    "profile": "r2med.nano.profiling",
}

__all__ = ["Pool", "Recipe", "add_candidates", "build", "make_pool", "profile"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'r2med.nano' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
