"""The published figures of R2MED, embedded: a row a system and task, a column a metric.

`figures.csv` is text so that a change of a figure can be read in a diff; an empty cell was not
published. NanoR2MED's figures are those of its candidate profiles, kept in the task manifest.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import cast

from r2med.systems.registry import Kind
from r2med.tasks.registry import find_suite

#: Collections of another benchmark, run for contrast; never part of a mean.
CONTRAST = ("NFCorpus",)

_NANO_ORIGIN = "hakari-bench/NanoR2MED"
_NANO_RUNS_AS = {"bm25": ("bm25-nano",), "harrier_oss_v1_270m": ("harrier",)}
_NANO_METRICS = {"ndcg_at_10": "ndcg@10", "hit_at_10": "hit@10", "recall_at_100": "recall@100"}


@dataclass(frozen=True)
class PublishedSystem:
    """One system's published figures: by task, then by metric, 0 to 1."""

    spec: str
    kind: Kind
    decimals: int
    """How many digits were published; ours are equal when they round to the same."""
    runs_as: tuple[str, ...] = ()
    """Further names under which the system can be run here."""
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def value(self, task: str, metric: str) -> float | None:
        """One figure; None when it was not published."""
        return self.figures.get(task, {}).get(metric)


@cache
def published_systems(suite: str) -> Mapping[str, PublishedSystem]:
    """The published systems of a suite by their text; none for the demo suite."""
    rows = {"full": _full, "nano": _nano}.get(suite)
    found = {system.spec: system for system in rows()} if rows else {}
    return MappingProxyType(found)


def is_micro(suite: str | None, metric: str) -> bool:
    """Whether a suite publishes this metric over all positives at once, not a mean over queries."""
    return suite == "nano" and metric.startswith("recall@")


def _full() -> Iterator[PublishedSystem]:
    found: dict[str, PublishedSystem] = {}
    text = (files(__package__) / "figures.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        kind, spec = cast(Kind, row.pop("kind")), row.pop("system")
        task, origin = row.pop("task"), row.pop("origin")
        system = found.setdefault(spec, PublishedSystem(spec, kind, decimals=5))
        system.figures[task] = {metric: float(value) for metric, value in row.items() if value}
        system.origins[task] = origin
    return iter(found.values())


def _nano() -> Iterator[PublishedSystem]:
    found: dict[str, PublishedSystem] = {}
    for entry in find_suite("nano").entries:
        for profile in entry.candidates.values():
            config = str(profile["config"])
            system = found.setdefault(
                config,
                PublishedSystem(
                    f"candidates:{config}", "base", 10, runs_as=_NANO_RUNS_AS.get(config, ())
                ),
            )
            system.figures[entry.name] = {
                ours: float(profile[theirs]) for theirs, ours in _NANO_METRICS.items()
            }
            system.origins[entry.name] = _NANO_ORIGIN
    return iter(found.values())
