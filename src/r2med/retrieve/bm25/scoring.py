"""BM25 scores and rankings: weigh a query's terms, sum their postings, keep the best documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from r2med.retrieve.bm25.index import Index, compiled
from r2med.retrieve.bm25.words import TokenColumns, in_threads
from r2med.retrieve.topk import best_places

Weights = NDArray[np.float64]
Rows = NDArray[np.int64]
Ranked = tuple[Rows, Weights]
QueryTerms = tuple[Rows, Rows]
"""A query's known terms, ascending, and how often it says each."""

#: Queries that a thread takes at once: the fewer, the more evenly threads are loaded.
_QUERIES_A_PART = 16
#: Postings that are weighed at once.
_BLOCK = 1 << 17


def lucene_idf(frequencies: Rows, documents: int) -> Weights:
    """ln(N + 1) - ln(df + 0.5): never negative."""
    weights: Weights = np.log(documents + 1) - np.log(frequencies + 0.5)
    return weights


def robertson_idf(frequencies: Rows, documents: int) -> Weights:
    """The original odds, floored so that a term in over half of the documents weighs nothing."""
    odds = (documents - frequencies + 0.5) / (frequencies + 0.5)
    weights: Weights = np.log(np.maximum(odds, 1.0))
    return weights


#: Inverse document frequencies by the name that a variant gives.
IDFS: Mapping[str, Callable[[Rows, int], Weights]] = MappingProxyType(
    {"lucene": lucene_idf, "robertson": robertson_idf}
)
#: What a query is: a bag of words, or a text that is weighted as documents are.
QUERIES = ("weighted", "bag")


class Scorer:
    """An index with its weights worked out, ready for any number of queries."""

    def __init__(self, index: Index, *, k1: float, b: float, idf: str, query: str) -> None:
        self._index = index
        self._k1, self._b, self._query = k1, b, query
        self._idf = IDFS[idf](np.diff(index.offsets), len(index))
        self._impacts = self._saturated()
        few = len(index.rows) <= np.iinfo(np.int32).max
        self._rows = index.rows if few else index.rows.astype(np.int64)
        compiled()  # Before two threads ask for it.

    def _saturated(self) -> Weights:
        """What each posting's f occurrences are worth, f / (f + norm): in place and in blocks."""
        index, norms = self._index, self._norms(self._index.lengths)
        impacts = np.empty(len(index.rows))

        def fill(start: int) -> None:
            block = slice(start, start + _BLOCK)
            counts, weights = index.counts[block].astype(np.float64), impacts[block]
            norms.take(index.rows[block], out=weights, mode="clip")
            np.divide(counts, np.add(counts, weights, out=weights), out=weights)

        for _ in in_threads(fill, range(0, len(impacts), _BLOCK)):
            pass
        return impacts

    def _norms(self, lengths: ArrayLike) -> Weights:
        """What a text of length L asks for half of a term's weight: k1 (1 - b + b L / average)."""
        longer = np.asarray(lengths, dtype=np.float64) / (self._index.average_length or 1.0)
        norms: Weights = self._k1 * (1.0 - self._b + self._b * longer)
        return norms

    def best(
        self, queries: TokenColumns, depth: int, *, among: Rows | None = None
    ) -> Iterator[Ranked]:
        """For each query the best documents and their scores, ties in the order of documents.

        `among` says which rows are ranked, and in which order they stand; all of them if None.
        Equal documents score equal: their terms are added in the same order.
        """

        def ranked(asked: Sequence[QueryTerms]) -> list[Ranked]:
            # One space to work in for all queries, because fresh memory costs more than sums.
            sums, lists = np.empty(len(self._index)), []
            for terms, counts in asked:
                self._add_up(sums, terms, counts)
                scores = sums if among is None else sums[among]
                places = best_places(scores, depth)
                lists.append((places, scores[places]))
            return lists

        asked = _query_terms(queries, self._index)
        for part in in_threads(ranked, iter(lambda: list(islice(asked, _QUERIES_A_PART)), [])):
            yield from part

    def _add_up(self, sums: Weights, terms: Rows, counts: Rows) -> None:
        """Set `sums` to every document's score: the weights of its terms times their impacts.

        The terms become columns of a sparse matrix without copying a posting: taken from the last
        to the first, the bounds between two wanted columns run backwards, which is an empty column.
        Terms are added in that order whatever the row, so that equal documents come to equal sums.
        """
        columns = np.zeros(2 * len(terms) + 1, dtype=self._rows.dtype)
        columns[0:-1:2] = self._index.offsets[terms[::-1]]
        columns[1::2] = self._index.offsets[terms[::-1] + 1]
        scales = np.zeros(2 * len(terms))
        scales[::2] = self._query_weights(terms, counts)[::-1]
        sums.fill(0.0)
        multiply = compiled().csc_matvec
        multiply(len(sums), len(scales), columns, self._rows, self._impacts, scales, sums)

    def contributions(self, query: TokenColumns, row: int) -> dict[str, float]:
        """What each term of one query adds to the score of one document."""
        terms, counts = next(_query_terms(query, self._index))
        added = {}
        for term, weight in zip(terms, self._query_weights(terms, counts), strict=True):
            start, end = self._index.offsets[term : term + 2]
            place = start + np.searchsorted(self._index.rows[start:end], row)
            if place < end and self._index.rows[place] == row:
                added[self._index.words.text(int(term))] = float(weight * self._impacts[place])
        return added

    def _query_weights(self, terms: Rows, counts: Rows) -> Weights:
        idf = self._idf[terms]
        if self._query == "bag":
            return idf * counts
        return idf * idf * (counts / (counts + self._norms(counts.sum())))


def _query_terms(queries: TokenColumns, index: Index) -> Iterator[QueryTerms]:
    """Each query's known terms and their counts; unknown terms are as if never said."""
    numbers = index.find(queries.keys)[queries.terms]
    rows = np.repeat(np.arange(len(queries)), np.diff(queries.offsets))
    known = numbers >= 0
    bits = max(len(index.keys), 1).bit_length()
    pairs, counts = np.unique(rows[known] << bits | numbers[known], return_counts=True)
    bounds = np.searchsorted(pairs, np.arange(len(queries) + 1) << bits)
    pairs &= (1 << bits) - 1
    for first, last in pairwise(bounds):
        yield pairs[first:last], counts[first:last]
