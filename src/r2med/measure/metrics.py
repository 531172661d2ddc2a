"""The metrics, vectorised over queries; their numbers are trec_eval's.

Written by hand because the oracle, pytrec_eval, takes dictionaries of Python objects and is
hundreds of times slower; the tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from r2med.measure.gains import Gains, Matrix
from r2med.measure.names import Metric

Column = NDArray[np.float64]


def score_column(gains: Gains, metric: Metric) -> Column:
    """One value a query."""
    depth = max(gains.found.shape[1], 1)
    return _KINDS[metric.kind](gains, metric.cutoff or depth)


def _ndcg(gains: Gains, cutoff: int) -> Column:
    return _ratio(_discounted(gains.found, cutoff), _discounted(gains.ideal, cutoff))


def _map(gains: Gains, cutoff: int) -> Column:
    relevant = gains.found[:, :cutoff] > 0
    precisions = np.cumsum(relevant, axis=1) / np.arange(1, relevant.shape[1] + 1)
    return _ratio((precisions * relevant).sum(axis=1), gains.positives)


def _recall(gains: Gains, cutoff: int) -> Column:
    return _ratio(_count(gains, cutoff), gains.positives)


def _precision(gains: Gains, cutoff: int) -> Column:
    return _count(gains, cutoff) / cutoff


def _hit(gains: Gains, cutoff: int) -> Column:
    return np.minimum(_count(gains, cutoff), 1.0)


def _mrr(gains: Gains, cutoff: int) -> Column:
    relevant = gains.found[:, :cutoff] > 0
    if not relevant.shape[1]:
        return np.zeros(len(relevant))
    return np.where(relevant.any(axis=1), 1.0 / (1 + relevant.argmax(axis=1)), 0.0)


def _count(gains: Gains, cutoff: int) -> Column:
    counts: Column = np.count_nonzero(gains.found[:, :cutoff] > 0, axis=1).astype(np.float64)
    return counts


def _discounted(matrix: Matrix, cutoff: int) -> Column:
    cut = matrix[:, :cutoff]
    summed: Column = cut @ (1.0 / np.log2(np.arange(2, cut.shape[1] + 2)))
    return summed


def _ratio(part: Column, whole: NDArray[np.generic]) -> Column:
    ratios: Column = np.divide(part, whole, out=np.zeros(len(part)), where=np.asarray(whole) > 0)
    return ratios


_KINDS: dict[str, Callable[[Gains, int], Column]] = {
    "ndcg": _ndcg,
    "map": _map,
    "recall": _recall,
    "precision": _precision,
    "hit": _hit,
    "mrr": _mrr,
}
