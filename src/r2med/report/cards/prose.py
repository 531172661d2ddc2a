"""The words about each task: data files, chosen by the task that the data stands for."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files

from r2med.tasks.registry import TaskEntry

_OWN = "own"


@dataclass(frozen=True)
class Prose:
    """What is said of a task beside its figures."""

    overview: str
    measures: str
    interpretation: str
    failures: tuple[str, ...]
    training: str
    sources: str


def prose_of(entry: TaskEntry | None) -> Prose:
    """The words for a registered task; for data of the user's own, general ones."""
    file = f"{entry.source if entry else _OWN}.toml"
    text = (files("r2med.report.cards") / "prose" / file).read_text(encoding="utf-8")
    read = tomllib.loads(text)
    return Prose(**{**read, "failures": tuple(read["failures"])})
