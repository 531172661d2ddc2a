"""The best of many scores, without sorting them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.bm25.weighting import Weights

Places = NDArray[np.int64]

_GROUPS = 4
"""Groups a wanted document: more make a sharper bound and cost more to look through."""


def top(scores: Weights, depth: int) -> Places:
    """The places of the `depth` highest scores, best first; of equal ones the earlier place.

    Scores are never negative; places that score nothing come last, in order.
    """
    reached = _reached(scores, depth)
    places = np.flatnonzero(scores >= reached if reached > 0 else scores > 0)
    ranked = _best_of(scores, places, depth)
    lacking = depth - len(ranked)
    if not lacking:
        return ranked
    return np.concatenate([ranked, np.flatnonzero(scores[: depth + len(ranked)] == 0)[:lacking]])


def _best_of(scores: Weights, places: Places, depth: int) -> Places:
    """The best of some places, given in ascending order; sorts only what can be among them."""
    candidates = scores[places]
    if len(places) > 2 * depth:
        kept = np.flatnonzero(candidates >= np.partition(candidates, -depth)[-depth])
        places, candidates = places[kept], candidates[kept]
    return places[np.argsort(-candidates, kind="stable")[:depth]]


def _reached(scores: Weights, depth: int) -> float:
    """A score that at least `depth` documents reach: as many groups hold one.

    0 where there are too few documents to form groups.
    """
    groups = _GROUPS * depth
    size = len(scores) // groups
    if size < 2:
        return 0.0
    best = scores[: size * groups].reshape(size, groups).max(axis=0)
    return float(np.partition(best, groups - depth)[groups - depth])
