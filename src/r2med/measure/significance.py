"""Is one system really better? Paired tests over queries, vectorised.

Written by hand because scipy's general permutation and bootstrap routines call back into Python
for every statistic; the tests hold these to scipy's answers and to exact enumeration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from r2med.errors import DataError
from r2med.measure.intervals import CONFIDENCE, RESAMPLES, SEED, Interval, mean_interval

Column = NDArray[np.float64]
#: Differences smaller than this are ties: far below any metric's step, above rounding noise.
_TIE = 1e-12
_BLOCK = 2_000_000


@dataclass(frozen=True)
class Comparison:
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


def compare(
    a: Column,
    b: Column,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    confidence: float = CONFIDENCE,
) -> Comparison:
    """Compare two columns of scores, aligned by query."""
    if len(a) != len(b):
        raise DataError(f"{len(a)} and {len(b)} scores: a comparison needs the same queries.")
    if not len(a):
        raise DataError("nothing to compare: the two have no judged query in common.")
    differences = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    return Comparison(
        queries=len(differences),
        mean_a=float(np.mean(a)),
        mean_b=float(np.mean(b)),
        difference=float(differences.mean()),
        interval=mean_interval(differences, confidence=confidence, resamples=resamples, seed=seed),
        p_randomisation=randomisation_p(differences, resamples=resamples, seed=seed),
        p_t=t_test_p(differences),
        effect=effect_size(differences),
        won=int((differences > _TIE).sum()),
        tied=int((np.abs(differences) <= _TIE).sum()),
        lost=int((differences < -_TIE).sum()),
    )


def randomisation_p(differences: Column, *, resamples: int = RESAMPLES, seed: int = SEED) -> float:
    """Two-sided p-value of the paired randomisation test on the mean.

    Under the null hypothesis every difference is as likely to have either sign. Small samples are
    enumerated exactly; otherwise signs are drawn, and the observed assignment counts as one draw.
    """
    moved = differences[np.abs(differences) > _TIE]
    if not moved.size:
        return 1.0
    observed = abs(float(moved.sum())) - 1e-9 * float(np.abs(moved).sum())
    if 2**moved.size <= resamples:
        assignments = np.arange(2**moved.size)[:, None] >> np.arange(moved.size)[None, :]
        sums = (1.0 - 2.0 * (assignments & 1)) @ moved
        return float((np.abs(sums) >= observed).mean())
    extreme = 1 + _extreme_draws(moved, observed, resamples, seed)
    return extreme / (resamples + 1)


def _extreme_draws(moved: Column, observed: float, resamples: int, seed: int) -> int:
    generator = np.random.default_rng(seed)
    rows = max(1, _BLOCK // moved.size)
    total = float(moved.sum())
    extreme = 0
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        packed = generator.integers(0, 256, size=(count, -(-moved.size // 8)), dtype=np.uint8)
        flipped = np.unpackbits(packed, axis=1, count=moved.size).astype(np.float64) @ moved
        extreme += int((np.abs(total - 2.0 * flipped) >= observed).sum())
    return extreme


def t_test_p(differences: Column) -> float:
    """Two-sided p-value of the paired t-test; 1 when nothing differs or there is one query only."""
    size = len(differences)
    spread = float(differences.std(ddof=1)) if size > 1 else 0.0
    mean = float(differences.mean())
    if spread <= _TIE:
        return 1.0 if abs(mean) <= _TIE or size < 2 else 0.0
    statistic = mean / (spread / np.sqrt(size))
    return float(2 * stdtr(size - 1, -abs(statistic)))


def effect_size(differences: Column) -> float:
    """Mean difference in units of its own standard deviation; 0 when nothing varies."""
    spread = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    return float(differences.mean()) / spread if spread > _TIE else 0.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: adjusted p-values in the order given."""
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, dtype=np.float64)[order] * (count - np.arange(count))
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(value) for value in adjusted]
