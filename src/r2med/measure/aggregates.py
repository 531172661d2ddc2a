"""Means over tasks, each under its own name, because they answer different questions.

The task mean counts every task once (R2MED's headline); the query-weighted mean counts every
query once (NanoR2MED's). A mean over fewer tasks than it claims is never given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True)
class Aggregates:
    """What a row of task scores comes to; None where a task is missing."""

    tasks: int
    """How many tasks have a score."""
    queries: int
    """How many queries these tasks have."""
    task_mean: float | None
    weighted_mean: float | None
    """Query-weighted; of a micro metric, weighted by positives: what all tasks at once give."""
    families: Mapping[str, float | None]


def aggregate(
    values: Mapping[str, float], weights: Mapping[str, int], families: Mapping[str, str]
) -> Aggregates:
    """Aggregate scores by task; `families` names the tasks that a mean must cover."""
    present = [task for task in families if task in values]
    complete = len(present) == len(families) > 0
    total = sum(weights[task] for task in present)
    weighted = sum(values[task] * weights[task] for task in present)
    groups: dict[str, list[str]] = {}
    for task, family in families.items():
        groups.setdefault(family, []).append(task)
    return Aggregates(
        tasks=len(present),
        queries=total,
        task_mean=fmean(values[task] for task in present) if complete else None,
        weighted_mean=weighted / total if complete and total else None,
        families={family: _mean_of(values, tasks) for family, tasks in groups.items()},
    )


def _mean_of(values: Mapping[str, float], tasks: Sequence[str]) -> float | None:
    return fmean(values[task] for task in tasks) if all(task in values for task in tasks) else None
