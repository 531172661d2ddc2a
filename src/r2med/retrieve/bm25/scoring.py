"""Scores and rankings: sum the postings of a query's terms, then select without sorting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from r2med.retrieve.bm25.analysis import TokenColumns
from r2med.retrieve.bm25.index import Index, distinct
from r2med.retrieve.bm25.weighting import IDFS, Weights, length_norms, saturation

Rows = NDArray[np.int64]

_GROUPS = 4
"""Groups a wanted document: more make a sharper bound and cost more to look through."""


@dataclass(frozen=True)
class Weighting:
    """The part of a variant that turns counts into scores."""

    k1: float
    b: float
    idf: str
    query: str


class Scorer:
    """An index with its weights worked out, ready for any number of queries."""

    def __init__(self, index: Index, weighting: Weighting) -> None:
        self._index = index
        self._rows = index.rows
        self._weighting = weighting
        self._idf = IDFS[weighting.idf](index.document_frequencies, len(index))
        self._impacts = saturation(index.counts, self._norms(index.lengths)[index.rows])

    def _norms(self, lengths: ArrayLike) -> Weights:
        weighting = self._weighting
        average = self._index.average_length
        return length_norms(lengths, average, k1=weighting.k1, b=weighting.b)

    def scores(self, queries: TokenColumns) -> Iterator[Weights]:
        """For each query the score of every document.

        Terms are added in the order of their numbers, so that equal documents score equal.
        """
        for terms, counts in _query_terms(queries, self._index):
            weights = self._query_weights(terms, counts)
            yield self._sum(terms, weights)

    def contributions(self, query: TokenColumns, row: int) -> dict[str, float]:
        """What each term of one query adds to the score of one document."""
        terms, counts = next(_query_terms(query, self._index))
        added = {}
        for term, weight in zip(terms, self._query_weights(terms, counts), strict=True):
            start, end = self._index.offsets[term : term + 2]
            place = start + np.searchsorted(self._rows[start:end], row)
            if place < end and self._rows[place] == row:
                added[self._index.words.text(int(term))] = float(weight * self._impacts[place])
        return added

    def _query_weights(self, terms: Rows, counts: Rows) -> Weights:
        idf = self._idf[terms]
        if self._weighting.query == "bag":
            return idf * counts
        return idf * idf * saturation(counts, self._norms(counts.sum()))

    def _sum(self, terms: Rows, weights: Weights) -> Weights:
        starts = self._index.offsets[terms]
        ends = self._index.offsets[terms + 1]
        if not len(terms):
            return np.zeros(len(self._index))
        postings = list(zip(starts.tolist(), ends.tolist(), strict=True))
        rows = np.concatenate([self._rows[a:b] for a, b in postings], dtype=np.int64)
        impacts = np.concatenate([self._impacts[a:b] for a, b in postings])
        impacts *= np.repeat(weights, ends - starts)
        return np.bincount(rows, impacts, minlength=len(self._index)).astype(np.float64, copy=False)


def _query_terms(queries: TokenColumns, index: Index) -> Iterator[tuple[Rows, Rows]]:
    """Each query's known terms and their counts; unknown terms are as if never said."""
    numbers = index.find(queries.keys)[queries.terms]
    rows = np.repeat(np.arange(len(queries)), np.diff(queries.offsets))
    known = numbers >= 0
    bits = max(len(index.keys), 1).bit_length()
    pairs, counts = distinct(rows[known] << bits | numbers[known])
    bounds = np.searchsorted(pairs, np.arange(len(queries) + 1) << bits)
    pairs &= (1 << bits) - 1
    for first, last in pairwise(bounds):
        yield pairs[first:last], counts[first:last]


def top(scores: Weights, depth: int) -> Rows:
    """The places of the `depth` highest scores, best first; of equal ones the earlier place.

    Scores are never negative; places that score nothing come last, in order.
    """
    places = np.flatnonzero(scores)
    if len(places) > depth:
        return _best(scores, np.flatnonzero(scores >= _bound(scores, depth)), depth)
    ranked = _best(scores, places, depth)
    lacking = depth - len(ranked)
    return np.concatenate([ranked, np.flatnonzero(scores[: depth + len(ranked)] == 0)[:lacking]])


def _best(scores: Weights, places: Rows, depth: int) -> Rows:
    """The best of some places, in ascending order; sorts only what can be among them."""
    candidates = scores[places]
    if len(places) > 2 * depth:
        kept = np.flatnonzero(candidates >= np.partition(candidates, -depth)[-depth])
        places, candidates = places[kept], candidates[kept]
    return places[np.argsort(-candidates, kind="stable")[:depth]]


def _bound(scores: Weights, depth: int) -> float:
    """A score that at least `depth` documents reach: as many groups hold one so high."""
    groups = _GROUPS * depth
    size = len(scores) // groups
    if size < 2:
        return 0.0
    best = scores[: size * groups].reshape(size, groups).max(axis=0)
    return float(np.partition(best, groups - depth)[groups - depth])
