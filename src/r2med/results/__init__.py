"""Results: what a system did on a task, stored so that it is never run twice."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from r2med.results.result import Result
    from r2med.results.store import DEFAULT_FOLDER, Store

#: Imported on first use: the published figures need none of the libraries that results do.
_HOMES = {
    "DEFAULT_FOLDER": "r2med.results.store",
    "Result": "r2med.results.result",
    "Store": "r2med.results.store",
}

__all__ = ["DEFAULT_FOLDER", "Result", "Store"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'r2med.results' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
