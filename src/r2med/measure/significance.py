"""Is one system really better? Paired tests over queries, of two systems or of all pairs of many.

Queries of different tasks are never mixed, and Holm's correction covers what is tested together,
because the more is tested the likelier something differs by luck. The randomisation test is written
by hand because scipy's calls back into Python for every statistic; the tests hold it to scipy's
answers and to exact enumeration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from string import ascii_letters

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError
from r2med.measure.intervals import (
    DIFFERENCES,
    RESAMPLES,
    SEED,
    TIE,
    Averaging,
    Column,
    Interval,
    estimate,
    pooled_interval,
    variance,
)

Matrix = NDArray[np.float64]
"""Scores of one task, queries by systems."""
#: A p-value below this is called significant, after correction where several are tested.
SIGNIFICANT = 0.05
_BLOCK = 2_000_000


@dataclass(frozen=True)
class Difference:
    """How system A differs from system B over the same queries (A minus B)."""

    queries: int
    mean_a: float
    mean_b: float
    difference: float
    interval: Interval
    p_randomisation: float
    p_t: float
    effect: float
    """Mean difference over its standard deviation (Cohen's d of paired differences)."""
    won: int
    tied: int
    lost: int


@dataclass(frozen=True)
class TaskDifference:
    """The difference on one task, and its p-value corrected for the number of tasks."""

    task: str
    difference: Difference
    p_holm: float | None
    """None where `task` names a mean over tasks."""


@dataclass(frozen=True)
class Pair:
    """Two systems by their places, compared on every task and over all; A is the earlier one."""

    a: int
    b: int
    tasks: tuple[TaskDifference, ...]
    by_task: Difference
    """Every task counts once."""
    by_query: Difference
    """Every query counts once."""
    p_holm: float
    """The randomisation p-value of the task mean, corrected for the number of pairs."""

    @property
    def lines(self) -> list[TaskDifference]:
        """Every task, and for several both means over them."""
        means = [("task mean", self.by_task), ("all queries", self.by_query)]
        pooled = [TaskDifference(name, difference, None) for name, difference in means]
        return [*self.tasks, *(pooled if len(self.tasks) > 1 else [])]


def compare_columns(a: Column, b: Column) -> Difference:
    """Compare two columns of scores of one task, aligned by query."""
    if len(a) != len(b):
        raise DataError(f"{len(a)} and {len(b)} scores: a comparison needs the same queries.")
    (pair,) = compare_systems({"": np.column_stack([a, b])})
    return pair.by_task


def compare_systems(tasks: Mapping[str, Matrix], *, resamples: int | None = None) -> list[Pair]:
    """Compare every pair of systems on every task and over the tasks.

    Without `resamples` there are as many draws as the number of pairs calls for.
    """
    if not tasks or not all(len(matrix) for matrix in tasks.values()):
        raise DataError("nothing to compare: the systems have no judged query in common.")
    pairs = list(combinations(range(next(iter(tasks.values())).shape[1]), 2))
    count = draws_for(len(pairs)) if resamples is None else resamples
    scores = list(tasks.values())
    single = [pairwise_p([matrix], "task", resamples=count) for matrix in scores]
    if len(tasks) == 1:
        p_task = p_query = single[0]
    else:
        p_task = pairwise_p(scores, "task", resamples=count)
        p_query = pairwise_p(scores, "query", resamples=count)
    compared = []
    for pair, p_holm in zip(pairs, holm([p_task[pair] for pair in pairs]), strict=True):
        p_values = [p[pair] for p in single]
        by_task = zip(tasks.items(), p_values, holm(p_values), strict=True)
        differences = tuple(
            TaskDifference(name, _compared([matrix], pair, "task", p), corrected)
            for (name, matrix), p, corrected in by_task
        )
        mean = _compared(scores, pair, "task", p_task[pair])
        every = _compared(scores, pair, "query", p_query[pair])
        compared.append(Pair(*pair, differences, mean, every, p_holm))
    return compared


def draws_for(pairs: int) -> int:
    """Draws that leave Holm's correction over so many pairs room: ten below what separates."""
    return max(RESAMPLES, round(10 * pairs / SIGNIFICANT))


def pairwise_p(tasks: Sequence[Matrix], by: Averaging, *, resamples: int = RESAMPLES) -> Matrix:
    """Two-sided p-values of the paired randomisation test on means over tasks, systems by systems.

    Under the null hypothesis every difference is as likely to have either sign. Small samples are
    enumerated exactly; otherwise signs are drawn, the same for all pairs, and the observed
    assignment counts as one draw. By task, a query weighs 1 / its task's size.
    """
    largest = max(len(task) for task in tasks)
    weights = [largest / len(task) if by == "task" else 1.0 for task in tasks]
    scores = np.concatenate([task * weight for task, weight in zip(tasks, weights, strict=True)])
    scores = scores[np.ptp(scores, axis=1) > TIE]
    systems = scores.shape[1]
    totals = scores.sum(axis=0)
    noise = [np.abs(scores - scores[:, [place]]).sum(axis=0) for place in range(systems)]
    observed = np.abs(totals[:, None] - totals) - 1e-9 * np.array(noise)
    exact = len(scores) < 40 and 2 ** len(scores) <= resamples
    extreme = np.zeros((systems, systems))
    for signs in _signs(len(scores), None if exact else resamples):
        sums = totals - 2 * (signs @ scores)
        for place in range(systems - 1):
            gaps = np.abs(sums[:, place + 1 :] - sums[:, [place]])
            extreme[place, place + 1 :] += (gaps >= observed[place, place + 1 :]).sum(axis=0)
    p = extreme / 2 ** len(scores) if exact else (extreme + 1) / (resamples + 1)
    p = np.triu(p, 1)
    symmetric: Matrix = p + p.T + np.eye(systems)
    return symmetric


def t_test_p(tasks: Sequence[Column], by: Averaging = "task") -> float:
    """Two-sided p-value of the paired t-test on a mean over tasks, Welch's for several.

    Where nothing varies there is no t; the p-value is then that of the signs alone.
    """
    from scipy.special import stdtr  # takes longer to import than most commands

    pooled = estimate(tasks, by, freedom_of=lambda task: max(len(task) - 1, 1))
    if abs(pooled.mean) <= TIE:
        return 1.0
    if not pooled.error:
        return min(1.0, 2.0 ** (1 - sum(len(task) for task in tasks)))
    return float(2 * stdtr(pooled.freedom, -abs(pooled.mean) / pooled.error))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: adjusted p-values in the order given."""
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, dtype=np.float64)[order] * (count - np.arange(count))
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(value) for value in adjusted]


def letters(different: NDArray[np.bool_]) -> list[str]:
    """A compact letter display: two systems share a letter exactly when they do not differ.

    `different` is a symmetric matrix over systems, best first. By insertion and absorption
    (Piepho 2004): a column of letters that holds two systems which differ becomes two columns.
    """
    size = len(different)
    columns = [frozenset(range(size))] if size else []
    for a, b in combinations(range(size), 2):
        if different[a, b]:
            split = [
                part
                for column in columns
                for part in ((column - {a}, column - {b}) if {a, b} <= column else (column,))
            ]
            columns = [one for one in dict.fromkeys(split) if not any(one < two for two in split)]
    columns.sort(key=sorted)
    names = [*ascii_letters, *(f"[{n}]" for n in range(len(ascii_letters), len(columns)))]
    return [
        "".join(name for name, column in zip(names, columns, strict=False) if system in column)
        for system in range(size)
    ]


def _compared(
    tasks: Sequence[Matrix], pair: tuple[int, int], by: Averaging, p: float
) -> Difference:
    a, b = ([matrix[:, place] for matrix in tasks] for place in pair)
    differences = [first - second for first, second in zip(a, b, strict=True)]
    every = np.concatenate(differences)
    mean_a, mean_b, difference = (_mean(side, by) for side in (a, b, differences))
    within = [variance(task) for task in differences] if by == "task" else [variance(every)]
    spread = float(np.sqrt(np.mean(within)))
    return Difference(
        queries=len(every),
        mean_a=mean_a,
        mean_b=mean_b,
        difference=difference,
        interval=pooled_interval(differences, by=by, span=DIFFERENCES),
        p_randomisation=float(p),
        p_t=t_test_p(differences, by),
        effect=difference / spread if spread else 0.0,
        won=int((every > TIE).sum()),
        tied=int((np.abs(every) <= TIE).sum()),
        lost=int((every < -TIE).sum()),
    )


def p_value(value: float) -> str:
    """A p-value to three places, without its leading zero."""
    return "<.001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


def p_equation(value: float) -> str:
    """A p-value as sentences say it."""
    return "p < .001" if value < 0.001 else f"p = {p_value(value)}"


def _mean(tasks: Sequence[Column], by: Averaging) -> float:
    if by == "query":
        return float(np.concatenate(tasks).mean())
    return float(np.mean([task.mean() for task in tasks]))


def _signs(size: int, resamples: int | None) -> Iterator[Matrix]:
    """Assignments of signs, as 1 where a sign is turned: all of them, or so many random ones.

    Random ones come in blocks that stay small in memory.
    """
    if resamples is None:
        yield ((np.arange(2**size)[:, None] >> np.arange(size)) & 1).astype(np.float64)
        return
    generator = np.random.default_rng(SEED)
    rows = max(1, _BLOCK // size)
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        packed = generator.integers(0, 256, size=(count, -(-size // 8)), dtype=np.uint8)
        yield np.unpackbits(packed, axis=1, count=size).astype(np.float64)
