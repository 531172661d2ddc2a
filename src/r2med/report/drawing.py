"""Draw values of the API on a terminal or a page, dispatched by their type.

The modules listed here register their types. They are imported one after the other until one of
them has registered the type, so that printing a score table does not load the audit.
"""

from __future__ import annotations

from functools import singledispatch
from importlib import import_module
from typing import Any

from r2med.report.table import Paper

_MODULES = (
    "scores",
    "comparison",
    "leaderboard",
    "diagnosis",
    "query_page",
    "reproduction",
    "power",
    "reasoning",
    "sensitivity",
    "run_scores",
    "body_systems",
    "score_intervals",
    "pack",
    "profiles",
    "audit",
    "twins",
    "judgements",
    "builds",
    "answers",
    "agents",
)


@singledispatch
def draw_registered(value: object, out: Paper, **settings: Any) -> None:
    """Draw a value whose type is registered; modules add types with `@draw_registered.register`."""
    raise TypeError(f"{type(value).__name__} has no drawing.")


def draw(value: object, out: Paper, **settings: Any) -> None:
    """Draw a value; `settings` are passed to the function that draws its type."""
    for name in _MODULES:
        if draw_registered.dispatch(type(value)) is not draw_registered.dispatch(object):
            break
        import_module(f"r2med.report.{name}")
    draw_registered(value, out, **settings)
