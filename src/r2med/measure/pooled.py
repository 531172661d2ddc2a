"""Compare two systems over several tasks: task by task, and pooled in two labelled ways.

Queries of different tasks are never mixed when resampling the task mean, and Holm's correction
covers the tasks, because the more tasks are tested the likelier one differs by luck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from scipy.special import stdtr

from r2med.measure.intervals import RESAMPLES, SEED, task_mean_interval
from r2med.measure.significance import Column, Comparison, compare, holm, randomisation_p

Paired = Mapping[str, tuple[Column, Column]]
"""For every task the two systems' scores, aligned by query."""


@dataclass(frozen=True)
class TaskComparison:
    """One task's comparison, and its randomisation p-value corrected for the number of tasks."""

    task: str
    comparison: Comparison
    p_holm: float


@dataclass(frozen=True)
class Pooled:
    """A comparison over tasks; with one task both poolings are that task's comparison."""

    tasks: tuple[TaskComparison, ...]
    by_query: Comparison
    """Every query counts once."""
    by_task: Comparison
    """Every task counts once."""


def compare_tasks(paired: Paired, *, resamples: int = RESAMPLES, seed: int = SEED) -> Pooled:
    """Compare two systems on every task, and pooled over them."""
    single = {
        task: compare(a, b, resamples=resamples, seed=seed) for task, (a, b) in paired.items()
    }
    adjusted = holm([comparison.p_randomisation for comparison in single.values()])
    if len(single) == 1:
        by_query = by_task = next(iter(single.values()))
    else:
        a, b = (np.concatenate([pair[side] for pair in paired.values()]) for side in (0, 1))
        by_query = compare(a, b, resamples=resamples, seed=seed)
        differences = [a - b for a, b in paired.values()]
        by_task = _by_task(by_query, list(single.values()), differences, resamples, seed)
    return Pooled(
        tuple(
            TaskComparison(task, comparison, p)
            for (task, comparison), p in zip(single.items(), adjusted, strict=True)
        ),
        by_query,
        by_task,
    )


def task_mean_p(
    differences: Sequence[Column], *, resamples: int = RESAMPLES, seed: int = SEED
) -> float:
    """Randomisation p-value of the difference of task means: a query weighs 1 / its task's size."""
    largest = max(len(task) for task in differences)
    weighted = np.concatenate([task * (largest / len(task)) for task in differences])
    return randomisation_p(weighted, resamples=resamples, seed=seed)


def _by_task(
    by_query: Comparison,
    single: Sequence[Comparison],
    differences: Sequence[Column],
    resamples: int,
    seed: int,
) -> Comparison:
    mean = fmean(comparison.difference for comparison in single)
    spread = float(np.sqrt(np.mean([_variance(task) for task in differences])))
    return replace(
        by_query,
        mean_a=fmean(comparison.mean_a for comparison in single),
        mean_b=fmean(comparison.mean_b for comparison in single),
        difference=mean,
        interval=task_mean_interval(differences, resamples=resamples, seed=seed),
        p_randomisation=task_mean_p(differences, resamples=resamples, seed=seed),
        p_t=_stratified_t_p(mean, differences),
        effect=mean / spread if spread > 0 else 0.0,
    )


def _stratified_t_p(mean: float, differences: Sequence[Column]) -> float:
    """Two-sided t-test of a mean of task means, with Welch and Satterthwaite's freedom."""
    parts = np.array([_variance(task) / len(task) for task in differences])
    sizes = np.array([max(len(task) - 1, 1) for task in differences])
    if not parts.sum() > 0:
        return 1.0 if mean == 0 else 0.0
    error = float(np.sqrt(parts.sum())) / len(differences)
    freedom = float(parts.sum() ** 2 / (parts**2 / sizes).sum())
    return float(2 * stdtr(freedom, -abs(mean) / error))


def _variance(differences: Column) -> float:
    return float(differences.var(ddof=1)) if len(differences) > 1 else 0.0
