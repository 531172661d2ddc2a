"""Paired significance tests over queries, of two systems or of all pairs of several systems.

Differences are taken within tasks, and Holm's correction covers all tests reported together. The
randomisation test is written by hand because scipy's calls back into Python for every statistic;
the tests compare it with scipy and with exact enumeration.
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
    """The difference between systems A and B on the same queries (A minus B)."""

    queries: int
    mean_a: float
    mean_b: float
    difference: float
    interval: Interval
    p_randomisation: float
    p_t: float | None
    """None if no task's differences vary, because t is then undefined."""
    effect: float | None
    """Cohen's d of paired differences: the mean difference / the standard deviation within tasks.

    None if the differences do not vary, because d is then infinite.
    """
    won: int
    tied: int
    lost: int


@dataclass(frozen=True)
class TaskDifference:
    """The difference on one task, with its p-value corrected over all tasks."""

    task: str
    difference: Difference
    p_holm: float | None
    """The corrected p-value; None if `task` is the name of a mean over tasks."""


@dataclass(frozen=True)
class Heterogeneity:
    """How much the difference of two systems varies between tasks, beyond chance."""

    q: float
    """Cochran's Q: squared deviations of the tasks' differences, weighted by 1 / variance."""
    freedom: int
    p_q: float
    i_squared: float
    """Share of the variation between tasks that is not chance (Higgins and Thompson 2002)."""
    p_random_tasks: float | None
    """P-value of a t-test over the tasks' differences, as if the tasks were a random sample of
    tasks."""


@dataclass(frozen=True)
class Pair:
    """Two systems, as column indices, compared on each task and over all tasks.

    A has the lower index, unless the pairs of a `best` system were requested, which is then A.
    """

    a: int
    b: int
    tasks: tuple[TaskDifference, ...]
    by_task: Difference
    """The difference of the task means (every task counts once)."""
    by_query: Difference
    """The difference of the query-weighted means (every query counts once)."""
    p_holm: float
    """The randomisation p-value of the task mean, corrected for the number of pairs."""
    heterogeneity: Heterogeneity | None = None
    """How much the difference varies between tasks; None for a single task."""

    @property
    def lines(self) -> list[TaskDifference]:
        """The difference on every task; if there are several, also both means over the tasks."""
        means = [("task mean", self.by_task), ("all queries", self.by_query)]
        pooled = [TaskDifference(name, difference, None) for name, difference in means]
        return [*self.tasks, *(pooled if len(self.tasks) > 1 else [])]


def compare_columns(a: Column, b: Column) -> Difference:
    """Compare two columns of scores of one task, aligned by query."""
    if len(a) != len(b):
        raise DataError(f"{len(a)} and {len(b)} scores: a comparison needs the same queries.")
    (pair,) = compare_systems({"": np.column_stack([a, b])})
    return pair.by_task


def compare_systems(
    tasks: Mapping[str, Matrix],
    *,
    pairs: Sequence[tuple[int, int]] | None = None,
    best: int | None = None,
    resamples: int | None = None,
) -> list[Pair]:
    """Compare pairs of systems on every task and over the tasks.

    Args:
        tasks: For each task, a matrix of scores with a row per query and a column per system.
        pairs: Pairs of columns to compare; by default all pairs. Holm's correction covers them all.
        best: Return only the pairs with this column, and put it first in each pair.
        resamples: Random draws; by default as many as the number of pairs needs.
    """
    if not tasks or not all(len(matrix) for matrix in tasks.values()):
        raise DataError("nothing to compare: the systems have no judged query in common.")
    if pairs is None:
        pairs = list(combinations(range(next(iter(tasks.values())).shape[1]), 2))
    count = draws_for(len(pairs)) if resamples is None else resamples
    scores = list(tasks.values())
    single = [pairwise_p([matrix], "task", resamples=count) for matrix in scores]
    if len(tasks) == 1:
        p_task = p_query = single[0]
    else:
        p_task = pairwise_p(scores, "task", resamples=count)
        p_query = pairwise_p(scores, "query", resamples=count)
    pairs_compared = []
    for tested_pair, p_holm in zip(pairs, holm([p_task[pair] for pair in pairs]), strict=True):
        if best is None:
            pair = tested_pair
        elif best in tested_pair:
            pair = _put_first(best, tested_pair)
        else:
            continue
        p_values = [p[pair] for p in single]
        tested = zip(tasks.items(), p_values, holm(p_values), strict=True)
        differences = tuple(
            TaskDifference(name, _measure_difference([matrix], pair, "task", p), corrected)
            for (name, matrix), p, corrected in tested
        )
        by_task = _measure_difference(scores, pair, "task", p_task[pair])
        by_query = _measure_difference(scores, pair, "query", p_query[pair])
        columns = [matrix[:, pair[0]] - matrix[:, pair[1]] for matrix in scores]
        pairs_compared.append(
            Pair(*pair, differences, by_task, by_query, p_holm, heterogeneity(columns))
        )
    return pairs_compared


def _put_first(system: int, pair: tuple[int, int]) -> tuple[int, int]:
    """Return the pair with this system first."""
    first, second = pair
    return (first, second) if first == system else (second, first)


def draws_for(pairs: int) -> int:
    """Number of random draws that `pairs` tests need to be significant after Holm's correction."""
    return max(RESAMPLES, round(10 * pairs / SIGNIFICANT))


def pairwise_p(tasks: Sequence[Matrix], by: Averaging, *, resamples: int = RESAMPLES) -> Matrix:
    """Two-sided p-values of the paired randomisation test, as a matrix of systems by systems.

    The tests are on differences of means over tasks.

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
    noise = [np.abs(scores - scores[:, [index]]).sum(axis=0) for index in range(systems)]
    observed = np.abs(totals[:, None] - totals) - 1e-9 * np.array(noise)
    exact = len(scores) < 40 and 2 ** len(scores) <= resamples
    extreme = np.zeros((systems, systems))
    for signs in _signs(len(scores), None if exact else resamples):
        sums = totals - 2 * (signs @ scores)
        for index in range(systems - 1):
            gaps = np.abs(sums[:, index + 1 :] - sums[:, [index]])
            extreme[index, index + 1 :] += (gaps >= observed[index, index + 1 :]).sum(axis=0)
    p = extreme / 2 ** len(scores) if exact else (extreme + 1) / (resamples + 1)
    p = np.triu(p, 1)
    symmetric: Matrix = p + p.T + np.eye(systems)
    return symmetric


def t_test_p(tasks: Sequence[Column], by: Averaging = "task") -> float | None:
    """Two-sided p-value of the paired t-test on a mean over tasks (Welch's test if several).

    None where no task varies within itself, so that no standard error can be estimated.
    """
    from scipy.special import stdtr  # takes longer to import than most commands

    pooled = estimate(tasks, by, freedom_of=lambda task: max(len(task) - 1, 1))
    if abs(pooled.mean) <= TIE:
        return 1.0
    if not pooled.error:
        return None
    return float(2 * stdtr(pooled.freedom, -abs(pooled.mean) / pooled.error))


def heterogeneity(tasks: Sequence[Column]) -> Heterogeneity | None:
    """Measure how differences vary between tasks; None for fewer than two tasks.

    Q covers the tasks whose variance is known: at least two queries, and not all equal.
    """
    from scipy.special import chdtrc, stdtr  # takes longer to import than most commands

    if len(tasks) < 2:
        return None
    means = np.array([task.mean() for task in tasks])
    spread = float(means.std(ddof=1))
    p_random = None
    if spread > TIE:
        t = abs(float(means.mean())) / (spread / np.sqrt(len(means)))
        p_random = float(2 * stdtr(len(means) - 1, -t))
    varying = [task for task in tasks if variance(task)]
    if len(varying) < 2:
        return Heterogeneity(0.0, 0, 1.0, 0.0, p_random)
    weights = np.array([len(task) / variance(task) for task in varying])
    varying_means = np.array([task.mean() for task in varying])
    center = float(weights @ varying_means / weights.sum())
    q = float(weights @ (varying_means - center) ** 2)
    freedom = len(varying) - 1
    i_squared = max(0.0, (q - freedom) / q) if q > 0 else 0.0
    return Heterogeneity(q, freedom, float(chdtrc(freedom, q)), i_squared, p_random)


def is_significant(p: float | None) -> bool:
    """Whether a p-value is below `SIGNIFICANT`; pass the corrected one if several are tested."""
    return p is not None and p < SIGNIFICANT


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's correction, in the given order."""
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
                rest_of_column
                for column in columns
                for rest_of_column in (
                    (column - {a}, column - {b}) if {a, b} <= column else (column,)
                )
            ]
            columns = [
                column
                for column in dict.fromkeys(split)
                if not any(column < larger for larger in split)
            ]
    columns.sort(key=sorted)
    names = [*ascii_letters, *(f"[{n}]" for n in range(len(ascii_letters), len(columns)))]
    return [
        "".join(name for name, column in zip(names, columns, strict=False) if system in column)
        for system in range(size)
    ]


def _measure_difference(
    tasks: Sequence[Matrix], pair: tuple[int, int], by: Averaging, p: float
) -> Difference:
    a, b = ([matrix[:, index] for matrix in tasks] for index in pair)
    differences = [first - second for first, second in zip(a, b, strict=True)]
    pooled = np.concatenate(differences)
    mean_a, mean_b, difference = (_mean(side, by) for side in (a, b, differences))
    return Difference(
        queries=len(pooled),
        mean_a=mean_a,
        mean_b=mean_b,
        difference=difference,
        interval=pooled_interval(differences, by=by, span=DIFFERENCES),
        p_randomisation=float(p),
        p_t=t_test_p(differences, by),
        effect=_effect_size(differences, difference, by),
        won=int((pooled > TIE).sum()),
        tied=int((np.abs(pooled) <= TIE).sum()),
        lost=int((pooled < -TIE).sum()),
    )


def _effect_size(tasks: Sequence[Column], mean: float, by: Averaging) -> float | None:
    """Cohen's d of paired differences.

    By task, the variance is the mean of the variances of tasks with at least two queries.
    """
    if abs(mean) <= TIE:
        return 0.0
    samples = [task for task in tasks if len(task) > 1] if by == "task" else [np.concatenate(tasks)]
    if not samples:
        return None
    spread = float(np.sqrt(np.mean([variance(sample) for sample in samples])))
    return mean / spread if spread else None


def _mean(tasks: Sequence[Column], by: Averaging) -> float:
    if by == "query":
        return float(np.concatenate(tasks).mean())
    return float(np.mean([task.mean() for task in tasks]))


def _signs(size: int, resamples: int | None) -> Iterator[Matrix]:
    """Yield assignments of signs, with 1 for a flipped sign: all, or `resamples` random ones.

    Random signs come in blocks, to limit memory.
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
