"""Scores and rankings: sum the postings of a query's terms, keep the best documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from r2med.retrieve.bm25.analysis import TokenColumns
from r2med.retrieve.bm25.index import Index, distinct
from r2med.retrieve.bm25.selection import top
from r2med.retrieve.bm25.summing import Postings
from r2med.retrieve.bm25.threads import in_threads
from r2med.retrieve.bm25.weighting import IDFS, Weights, length_norms, saturation

Rows = NDArray[np.int64]
Ranked = tuple[Rows, Weights]
QueryTerms = tuple[Rows, Rows]
"""A query's known terms, ascending, and how often it says each."""

_QUERIES_A_PART = 16
"""Queries that a thread takes at once: the fewer, the more evenly threads are loaded."""


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
        self._weighting = weighting
        self._idf = IDFS[weighting.idf](index.document_frequencies, len(index))
        impacts = saturation(index.counts, self._norms(index.lengths)[index.rows])
        self._postings = Postings(index.rows, impacts)

    def _norms(self, lengths: ArrayLike) -> Weights:
        weighting = self._weighting
        average = self._index.average_length
        return length_norms(lengths, average, k1=weighting.k1, b=weighting.b)

    def best(
        self, queries: TokenColumns, depth: int, *, among: Rows | None = None
    ) -> Iterator[Ranked]:
        """For each query the best documents and their scores, ties in the order of documents.

        `among` says which rows are ranked, and in which order they stand; all of them if None.
        Equal documents score equal: their terms are added in the same order.
        """

        def ranked(asked: Sequence[QueryTerms]) -> list[Ranked]:
            sums = np.empty(len(self._index))
            return [self._ranked(query, depth, among, sums) for query in asked]

        asked = _query_terms(queries, self._index)
        for part in in_threads(ranked, iter(lambda: list(islice(asked, _QUERIES_A_PART)), [])):
            yield from part

    def _ranked(self, query: QueryTerms, depth: int, among: Rows | None, sums: Weights) -> Ranked:
        """Rank one query; `sums` is space to work in, because fresh memory costs more than sums."""
        terms, counts = query
        sums.fill(0.0)
        bounds = self._index.offsets[terms], self._index.offsets[terms + 1]
        weights = self._query_weights(terms, counts)
        self._postings.add(sums, bounds, weights)
        scores = sums if among is None else sums[among]
        places = top(scores, depth)
        return places, scores[places]

    def contributions(self, query: TokenColumns, row: int) -> dict[str, float]:
        """What each term of one query adds to the score of one document."""
        terms, counts = next(_query_terms(query, self._index))
        added = {}
        for term, weight in zip(terms, self._query_weights(terms, counts), strict=True):
            start, end = self._index.offsets[term : term + 2]
            place = start + np.searchsorted(self._index.rows[start:end], row)
            if place < end and self._index.rows[place] == row:
                added[self._index.words.text(int(term))] = float(
                    weight * self._postings.impacts[place]
                )
        return added

    def _query_weights(self, terms: Rows, counts: Rows) -> Weights:
        idf = self._idf[terms]
        if self._weighting.query == "bag":
            return idf * counts
        return idf * idf * saturation(counts, self._norms(counts.sum()))


def _query_terms(queries: TokenColumns, index: Index) -> Iterator[QueryTerms]:
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
