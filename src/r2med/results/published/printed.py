"""Figures as their works printed them: R2MED's result files and everything reported since.

Figures of one system that agree at two decimals are one `Printed` with several works; figures that
differ stand beside each other, in the order of `works.toml`. `models.toml` says which system a row
of `later.tsv` is of; rows that it does not know are returned as they stand, never dropped.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal

from r2med.results.published.figures import published_systems
from r2med.systems.registry import Kind
from r2med.tasks.registry import find_suite

#: All that later works report.
METRIC = "ndcg@10"
RerankerClass = Literal["classical", "reasoning", "prompted"]

_RERANKED = re.compile(r"rerank (?P<first>.+) top(?P<depth>\d+)")
#: Half of the last digit that counts when two works are compared: two decimals of 100.
_EQUAL = 0.5e-4 + 1e-9


@dataclass(frozen=True)
class Work:
    """A paper, page or repository that reports figures; works.toml describes each field."""

    id: str
    name: str
    short: str
    revision: str
    table: str = ""
    date: str = ""
    """As far as it is known: 2025-08."""
    preset: str = ""
    protocol: Mapping[str, str] = field(default_factory=dict, hash=False)
    averages: Mapping[str, float] = field(default_factory=dict, hash=False)
    source: str = ""

    def __str__(self) -> str:
        where = f"{self.revision}, {self.table}" if self.table else self.revision
        return f"{self.name} ({where})"


@dataclass(frozen=True)
class Printed:
    """One system's figures, 0 to 1 by task, and the works that print them alike."""

    system: str
    kind: Kind
    works: tuple[Work, ...]
    values: Mapping[str, float] = field(hash=False)
    decimals: int = 4
    spelling: str = ""
    """How the first work calls the system."""
    revision: str = ""
    """Of the checkpoint, where the work gives it."""
    variant: str = ""
    """How the model was run, where the work reports it in more than one way."""


@cache
def printed_figures(suite: str, metric: str) -> Mapping[str, tuple[Printed, ...]]:
    """By system the figures of a suite's tasks, the one that ranks first."""
    rows = list(_published(suite, metric))
    if suite == "full" and metric == METRIC:
        rows += later_rows()[0]
    grouped: dict[str, list[Printed]] = {}
    for row in rows:
        grouped.setdefault(row.system, []).append(row)
    return MappingProxyType({system: _merged(group) for system, group in grouped.items()})


@cache
def works() -> Mapping[str, Work]:
    """All works by name, in the order in which their figures count."""
    return MappingProxyType({id: Work(id, **facts) for id, facts in _toml("works.toml").items()})


@cache
def later_rows() -> tuple[tuple[Printed, ...], tuple[str, ...]]:
    """The rows of later.tsv, and the spellings among them that stand for no known model."""
    text = (files(__package__) / "later.tsv").read_text(encoding="utf-8")
    return read_rows(text.splitlines(), _aliases())


def read_rows(
    lines: Iterable[str], aliases: Mapping[str, tuple[str, str]]
) -> tuple[tuple[Printed, ...], tuple[str, ...]]:
    """Rows in the order of their works; `aliases` gives the unit and variant of a spelling."""
    by_source = {work.source: work for work in works().values() if work.source}
    order = list(works())
    rows, unmapped = [], []
    for row in csv.DictReader(lines, delimiter="\t"):
        work = by_source.get(row["source"])
        found = _system_of(row["stage"], row["system"], aliases)
        if work is None or found is None:
            unmapped.append(f"{row['system']} ({row['source']}, {row['stage']})")
        else:
            rows.append(_printed(row, work, *found))
    rows.sort(key=lambda printed: order.index(printed.works[0].id))
    return tuple(rows), tuple(unmapped)


def model_named(spelling: str) -> str | None:
    """The name of the model that a work, a hub or a user spells so; None for an unknown one."""
    wanted = spelling.lower()
    for known, (unit, _) in _aliases().items():
        if known.lower() == wanted and ":" not in unit:
            return unit
    return spelling if spelling in models() else None


@cache
def models() -> Mapping[str, Mapping[str, Any]]:
    """What models.toml says of each model, by name."""
    found: dict[str, Mapping[str, Any]] = _toml("models.toml")["models"]
    return MappingProxyType(found)


def _merged(rows: list[Printed]) -> tuple[Printed, ...]:
    """Rows that agree on every task become one, with the works of all."""
    merged: list[Printed] = []
    for row in rows:
        for place, other in enumerate(merged):
            if not row.variant and not other.variant and _alike(row.values, other.values):
                merged[place] = replace(other, works=(*other.works, *row.works))
                break
        else:
            merged.append(row)
    return tuple(merged)


def _alike(some: Mapping[str, float], others: Mapping[str, float]) -> bool:
    return some.keys() == others.keys() and all(
        abs(value - others[task]) <= _EQUAL for task, value in some.items()
    )


def _published(suite: str, metric: str) -> Iterator[Printed]:
    tasks = [task.name for task in find_suite(suite).entries]
    for system in published_systems(suite).values():
        values = {
            task: value for task in tasks if (value := system.value(task, metric)) is not None
        }
        if values:
            origins = ", ".join(dict.fromkeys(system.origins[task] for task in values))
            work = replace(works()["r2med" if suite == "full" else "nano"], revision=origins)
            yield Printed(system.spec, system.kind, (work,), values, system.decimals)


def _printed(row: Mapping[str, str], work: Work, system: str, kind: Kind, variant: str) -> Printed:
    spelling, _, revision = row["system"].partition("@")
    cells = {task.name: row[task.name.lower()] for task in find_suite("full").entries}
    digits = max(len(cell.partition(".")[2]) for cell in cells.values())
    return Printed(
        system=system,
        kind=kind,
        works=(work,),
        values={task: float(cell) / 100 for task, cell in cells.items()},
        decimals=2 + digits,
        spelling=spelling,
        revision=revision,
        variant=variant,
    )


def _system_of(
    stage: str, spelling: str, aliases: Mapping[str, tuple[str, str]]
) -> tuple[str, Kind, str] | None:
    """The system, its kind and its variant; None when a part of it has no known name."""
    if stage in ("retriever", "first stage"):
        model, variant = aliases.get(spelling.partition("@")[0], ("", ""))
        return (model, "base", variant) if model else None
    if stage == "HyDE/search":
        expander, _, retriever = spelling.rpartition(" + ")
        units = [aliases.get(part, ("", ""))[0] for part in (expander, retriever)]
        return (" | ".join(units), "gar", "") if all(units) else None
    if reranked := _RERANKED.fullmatch(stage):
        first = aliases.get(reranked["first"], ("", ""))[0]
        model, variant = aliases.get(spelling, ("", ""))
        text = f"{first} | {model}@{reranked['depth']}"
        return (text, "reranker", variant) if first and model else None
    return None


@cache
def _aliases() -> Mapping[str, tuple[str, str]]:
    """By spelling the unit of a system's text and how it was run."""
    found = {spelling: (unit, "") for spelling, unit in _toml("models.toml")["expanders"].items()}
    for model, facts in models().items():
        found |= dict.fromkeys(facts.get("names", ()), (model, ""))
        found |= {spelling: (model, how) for spelling, how in facts.get("variants", {}).items()}
    return MappingProxyType(found)


@cache
def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((files(__package__) / name).read_text(encoding="utf-8"))
