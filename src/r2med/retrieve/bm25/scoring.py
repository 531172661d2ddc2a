"""BM25 scores and rankings: weigh a query's terms, sum their postings, keep the best documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from r2med.retrieve.bm25.index import Index, distinct
from r2med.retrieve.bm25.words import TokenColumns, in_threads
from r2med.retrieve.topk import best_places

Weights = NDArray[np.float64]


Rows = NDArray[np.int64]


Ranked = tuple[Rows, Weights]


QueryTerms = tuple[Rows, Rows]
"""A query's known terms, ascending, and how often it says each."""


Product = Callable[..., None]


_QUERIES_A_PART = 16
"""Queries that a thread takes at once: the fewer, the more evenly threads are loaded."""


_BLOCK = 1 << 17
"""Postings that are weighed at once."""


_MOST_POSTINGS = np.iinfo(np.int32).max


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
        self._postings = Postings(index.rows, self._impacts())

    def _impacts(self) -> Weights:
        """The `saturation` of each posting, worked out in place and in blocks."""
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
        places = best_places(scores, depth)
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


@cache
def compiled_product() -> Product | None:
    """The loop behind scipy's sparse products, `sums += matrix @ scales`; None where it is not.

    Its compiled file is loaded alone: importing `scipy.sparse` takes longer than most searches.
    """
    import scipy

    folder = Path(scipy.__file__).parent / "sparse"
    for suffix in EXTENSION_SUFFIXES:
        path = folder / f"_sparsetools{suffix}"
        if path.exists():
            return getattr(_load(path), "csc_matvec", None)
    return None


def _load(path: Path) -> Any:
    spec = spec_from_file_location("scipy.sparse._sparsetools", path)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True, eq=False)
class Postings:
    """The documents of all terms, one term after the other, and what each adds to a score."""

    rows: NDArray[np.int32]
    impacts: Weights
    product: Product | None = field(default_factory=compiled_product)

    def add(self, sums: Weights, bounds: tuple[Rows, Rows], weights: Weights) -> None:
        """Add `weights[i]` times the impacts from `bounds[0][i]` to `bounds[1][i]` to their rows.

        Bounds are those of distinct terms, ascending. They become columns of a sparse matrix
        without copying a posting: taken from the last to the first, the bounds between two wanted
        columns run backwards, which is an empty column. Terms are added in that order whatever the
        row, so that equal documents come to equal sums.
        """
        if self.product is None or len(self.rows) > _MOST_POSTINGS:
            sums += self._summed(bounds, weights, len(sums))
            return
        columns = np.empty(2 * len(weights) + 1, dtype=np.int32)
        columns[0:-1:2], columns[1::2] = bounds[0][::-1], bounds[1][::-1]
        columns[-1] = 0
        scales = np.zeros(2 * len(weights))
        scales[::2] = weights[::-1]
        self.product(len(sums), len(scales), columns, self.rows, self.impacts, scales, sums)

    def _summed(self, bounds: tuple[Rows, Rows], weights: Weights, length: int) -> Weights:
        """The same in array operations, at five times the cost."""
        places = list(zip(bounds[0].tolist(), bounds[1].tolist(), strict=True))[::-1]
        if not places:
            return np.zeros(length)
        found = np.concatenate([self.rows[start:end] for start, end in places])
        scaled = np.concatenate([self.impacts[start:end] for start, end in places])
        scaled *= np.repeat(weights[::-1], (bounds[1] - bounds[0])[::-1])
        return np.bincount(found, scaled, minlength=length).astype(np.float64, copy=False)


def lucene_idf(frequencies: Rows, documents: int) -> Weights:
    """ln(N + 1) - ln(df + 0.5): never negative."""
    weights: Weights = np.log(documents + 1) - np.log(frequencies + 0.5)
    return weights


def robertson_idf(frequencies: Rows, documents: int) -> Weights:
    """The original odds, floored so that a term in over half of the documents weighs nothing."""
    odds = (documents - frequencies + 0.5) / (frequencies + 0.5)
    weights: Weights = np.log(np.maximum(odds, 1.0))
    return weights


def length_norms(lengths: ArrayLike, average: float, *, k1: float, b: float) -> Weights:
    """What a text of length L asks for half of a term's weight: k1 (1 - b + b L / average)."""
    longer = np.asarray(lengths, dtype=np.float64) / (average or 1.0)
    norms: Weights = k1 * (1.0 - b + b * longer)
    return norms


def saturation(counts: NDArray[np.integer], norms: ArrayLike) -> Weights:
    """What f occurrences are worth: f / (f + norm)."""
    weights: Weights = counts / (counts + np.asarray(norms, dtype=np.float64))
    return weights


#: Inverse document frequencies by the name that a variant gives.
IDFS: Mapping[str, Callable[[Rows, int], Weights]] = MappingProxyType(
    {"lucene": lucene_idf, "robertson": robertson_idf}
)


#: What a query is: a bag of words, or a text that is weighted as documents are.
QUERIES = ("weighted", "bag")


#: What becomes of documents without any term of the query: they fill the run, or are left out.
UNMATCHED = ("fill", "drop")
