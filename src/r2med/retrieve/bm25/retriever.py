"""BM25 as a first stage: weigh a query's terms, sum their postings, keep the best documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from r2med.atomic import let_go
from r2med.errors import DamagedError
from r2med.retrieve.bm25.analyzers import ANALYZERS, find_analyzer
from r2med.retrieve.bm25.index import (
    Index,
    build_index,
    compiled,
    index_path,
    read_index,
    write_index,
)
from r2med.retrieve.bm25.words import TokenColumns, in_threads
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.topk import best_places
from r2med.runs import Run
from r2med.settings import setting
from r2med.tasks.task import Corpus, Queries, Task

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


@dataclass(frozen=True)
class Bm25Retriever:
    """A BM25 variant; its fields are the settings of `variants.toml`."""

    analyzer: str = setting(choices=ANALYZERS)
    k1: float = setting(least=0)
    b: float = setting(least=0, most=1)
    idf: str = setting(choices=IDFS)
    query: str = setting(choices=QUERIES)
    unmatched: str = setting(choices=("fill", "drop"))
    """What becomes of documents without any term of the query."""

    @property
    def identity(self) -> Mapping[str, object]:
        """The analysis in its present behaviour."""
        return {"analysis": find_analyzer(self.analyzer).identity}

    def prepare(self, task: Task) -> Bm25Searcher:
        """Take the kept index of this corpus and analysis, or build and keep one."""
        return Bm25Searcher(self, task.corpus)


def build(settings: Bm25Retriever, conditions: Conditions) -> Bm25Retriever:
    """The settings are the retriever; conditions change nothing."""
    return settings


class Bm25Searcher:
    """A corpus under one variant."""

    def __init__(self, retriever: Bm25Retriever, corpus: Corpus) -> None:
        self._retriever = retriever
        self._analyzer = find_analyzer(retriever.analyzer)
        self._corpus = corpus
        self._index, self._origin = self._obtain()
        k1, b, idf, query = retriever.k1, retriever.b, retriever.idf, retriever.query
        self._scorer = Scorer(self._index, k1=k1, b=b, idf=idf, query=query)

    def _obtain(self) -> tuple[Index, str]:
        """The index, and where it came from."""
        path = index_path(self._corpus.hash, self._analyzer.identity)
        origin = "built"
        try:
            return read_index(path), "cached"
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (DamagedError, OSError) as problem:
            origin = f"rebuilt: {problem}"
        tokens = self._analyzer.grouped(self._corpus.texts)
        let_go()
        index = build_index(tokens)
        try:
            write_index(index, path)
        except OSError as problem:
            origin += f", not kept ({problem})"
        return index, origin

    def search(self, queries: Queries, *, depth: int) -> Run:
        """The best documents of every query; of equal scores the id that comes first in the corpus.

        Where an id repeats, its last row's score counts, at its first row's place.
        """
        last_rows = self._corpus.last_rows
        among = None if len(last_rows) == len(self._corpus) else last_rows
        documents: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        scores: list[Weights] = [np.empty(0)]
        asked = self._analyzer.analyze(queries.texts)
        for best, summed in self._scorer.best(asked, depth, among=among):
            kept = summed > 0 if self._retriever.unmatched == "drop" else slice(None)
            documents.append(best[kept])
            scores.append(summed[kept])
        return Run(
            query_ids=queries.ids,
            document_ids=self._corpus.document_ids,
            offsets=np.cumsum([len(best) for best in documents], dtype=np.int64),
            documents=np.concatenate(documents).astype(np.int32),
            scores=np.concatenate(scores),
        )

    def contributions(self, query: str, document_id: str) -> dict[str, float]:
        """What each term of a query adds to a document's score; they sum to it."""
        code = self._corpus.document_ids.index(document_id).as_py()
        text = self._analyzer.analyze(pa.array([query], type=pa.large_string()))
        return self._scorer.contributions(text, int(self._corpus.last_rows[code]))

    def facts(self) -> Mapping[str, object]:
        """The index and the first document as analysed."""
        first = self._analyzer.analyze(self._corpus.texts[:1])
        return {
            "index": self._origin,
            "cached": len(self._index) if self._origin == "cached" else 0,
            "documents": len(self._index),
            "terms": len(self._index.keys),
            "average_length": self._index.average_length,
            "first_document_terms": first.row(0) if len(first) else [],
        }


class Scorer:
    """An index with its weights worked out, ready for any number of queries."""

    def __init__(self, index: Index, *, k1: float, b: float, idf: str, query: str) -> None:
        self._index = index
        self._k1, self._b, self._query = k1, b, query
        self._idf = IDFS[idf](np.diff(index.offsets), len(index))
        # What each posting's f occurrences are worth, f / (f + norm): in place and in blocks.
        norms = self._norms(index.lengths)
        self._impacts = impacts = np.empty(len(index.rows))

        def fill(start: int) -> None:
            block = slice(start, start + _BLOCK)
            counts, weights = index.counts[block].astype(np.float64), impacts[block]
            norms.take(index.rows[block], out=weights, mode="clip")
            np.divide(counts, np.add(counts, weights, out=weights), out=weights)

        for _ in in_threads(fill, range(0, len(impacts), _BLOCK)):
            pass
        few = len(index.rows) <= np.iinfo(np.int32).max
        self._rows = index.rows if few else index.rows.astype(np.int64)
        compiled()  # Before two threads ask for it.

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
