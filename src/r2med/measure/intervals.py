"""Confidence intervals of means by bootstrap: how far a score would move with other queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
CONFIDENCE = 0.95
SEED = 20250514
_BLOCK = 200_000

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A range that covers the true mean with the stated confidence."""

    low: float
    high: float
    confidence: float = CONFIDENCE

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def mean_interval(
    values: Column,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """Percentile bootstrap interval of one mean; a seed makes it reproducible."""
    return task_mean_interval([values], confidence=confidence, resamples=resamples, seed=seed)


def task_mean_interval(
    tasks: Sequence[Column],
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """Interval of the plain mean over tasks; queries are resampled within their own task."""
    generator = np.random.default_rng(seed)
    means = np.mean([resampled_means(task, resamples, generator) for task in tasks], axis=0)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(low), float(high), confidence)


def task_mean_intervals(
    tasks: Sequence[Matrix],
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> list[Interval]:
    """`task_mean_interval` for many systems at once: a matrix a task, queries by systems."""
    generator = np.random.default_rng(seed)
    means = np.mean([resampled_means(task, resamples, generator) for task in tasks], axis=0)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return [Interval(float(a), float(b), confidence) for a, b in zip(low, high, strict=True)]


def resampled_means(values: Column, resamples: int, generator: np.random.Generator) -> Column:
    """Means of samples drawn with replacement, each as large as the original.

    Of a matrix (queries by systems), all columns share the draws.
    """
    values, size = np.asarray(values, dtype=np.float64), len(values)
    blocks = []
    for count in _block_sizes(resamples, size):
        picks = generator.integers(0, size, size=(count, size), dtype=np.int32)
        if values.ndim == 1:
            blocks.append(values.take(picks).mean(axis=1))
        else:
            blocks.append(_times_drawn(picks) @ values / size)
    return np.concatenate(blocks)


def _block_sizes(resamples: int, size: int) -> list[int]:
    """Resamples split so that a block of draws stays small in memory."""
    rows = max(1, _BLOCK // size)
    return [min(rows, resamples - start) for start in range(0, resamples, rows)]


def _times_drawn(picks: NDArray[np.int32]) -> Matrix:
    """How often each resample drew each query."""
    count, size = picks.shape
    flat = picks + (np.arange(count, dtype=np.int32) * size)[:, None]
    drawn = np.bincount(flat.ravel(), minlength=count * size)
    return drawn.reshape(count, size).astype(np.float64)
