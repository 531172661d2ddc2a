"""Confidence intervals of means: the range in which the mean over similar queries would fall.

They are Student's t intervals with two corrections. If a column has heavy tails (two similar
systems tie on most queries and differ much on a few), a small sample says little about the spread
of all queries, so the degrees of freedom fall as the kurtosis rises. If a column does not vary at
all, unseen queries may: with n equal values, the share of queries that have another value is
below 1 - 0.025 ** (1 / n) with the same confidence, which bounds the mean.

`bench/intervals.py` holds the coverage on differences of real results; percentiles of the
bootstrap, its studentised form and the plain t interval cover less than they promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
#: Draws of everything that is drawn, and the seed that makes it repeatable.
RESAMPLES = 10_000
SEED = 20250514
#: Differences smaller than this are ties: far below any metric's step, above rounding noise.
TIE = 1e-12

Column = NDArray[np.float64]
Averaging = Literal["task", "query"]
"""The unit that counts once in a mean over tasks: each task, or each query."""
Span = tuple[float, float]
#: The least and the largest value of a score, and of the difference of two scores.
SCORES: Span = (0.0, 1.0)
DIFFERENCES: Span = (-1.0, 1.0)


@dataclass(frozen=True)
class Interval:
    """A range that covers the true mean with the stated confidence."""

    low: float
    high: float
    confidence: float = CONFIDENCE

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def mean_interval(values: Column, *, span: Span = SCORES) -> Interval:
    """The interval of one mean."""
    return pooled_interval([values], span=span)


def pooled_interval(
    tasks: Sequence[Column], *, by: Averaging = "task", span: Span = SCORES
) -> Interval:
    """The interval of a mean over tasks; queries are resampled within each task (stratified)."""
    from scipy.special import stdtrit  # takes longer to import than most commands

    pooled = estimate(tasks, by, freedom_of=_freedom)
    tail = (1 - CONFIDENCE) / 2
    reach = pooled.error * float(stdtrit(pooled.freedom, 1 - tail)) if pooled.error else 0.0
    unseen = [1 - tail ** (1 / len(task)) for task in tasks]
    shares = np.where(pooled.still, pooled.weights * unseen, 0.0)
    down, up = (np.linalg.norm(shares * np.abs(pooled.means - end)) for end in span)
    low = pooled.mean - float(np.hypot(reach, down))
    high = pooled.mean + float(np.hypot(reach, up))
    return Interval(max(low, span[0]), min(high, span[1]))


@dataclass(frozen=True, eq=False)
class Estimate:
    """A mean over tasks, with its standard error."""

    mean: float
    error: float
    """Standard error of the mean; 0 if the queries of every task have equal scores."""
    freedom: float
    """Degrees of freedom of the standard error, after Welch and Satterthwaite."""
    weights: Column
    means: Column
    """The mean of each task."""
    still: NDArray[np.bool_]
    """For each task, whether all of its queries have the same value."""


def estimate(
    tasks: Sequence[Column], by: Averaging, *, freedom_of: Callable[[Column], float]
) -> Estimate:
    """The mean over tasks with its standard error, drawn from the spread within each task.

    A task with a single query takes the mean variance of the other tasks.
    """
    sizes = np.array([len(task) for task in tasks], dtype=np.float64)
    weights = sizes / sizes.sum() if by == "query" else np.full(len(tasks), 1 / len(tasks))
    means = np.array([task.mean() for task in tasks])
    variances_known = [variance(task) for task in tasks if len(task) > 1]
    typical_variance = float(np.mean(variances_known)) if variances_known else 0.0
    variances = np.array([variance(task) if len(task) > 1 else typical_variance for task in tasks])
    parts = weights**2 * variances / sizes
    freedoms = np.array([freedom_of(task) for task in tasks])
    total = float(parts.sum())
    return Estimate(
        mean=float(weights @ means),
        error=float(np.sqrt(total)),
        freedom=float(total**2 / (parts**2 / freedoms).sum()) if total else 1.0,
        weights=weights,
        means=means,
        still=variances == 0,
    )


def variance(values: Column) -> float:
    """Variance of a sample; 0 for a single value or pure rounding noise."""
    return float(values.var(ddof=1)) if len(values) > 1 and np.ptp(values) > TIE else 0.0


def _freedom(values: Column) -> float:
    """Degrees of freedom of a sample's variance, from the kurtosis; n - 1 for a normal sample.

    The variance of a sample's variance grows with kurtosis (Shoemaker 2003, Bonett 2006), and a
    chi-squared variable of this many degrees of freedom varies as much.
    """
    size = len(values)
    if not variance(values):
        return 1.0
    squares = (values - values.mean()) ** 2
    kurtosis = float((squares**2).mean() / squares.mean() ** 2)
    return float(np.clip(2 * size / (kurtosis - 1 + 2 / (size - 1)), 1, size - 1))
