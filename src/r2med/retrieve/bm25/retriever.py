"""BM25 as a first stage: weigh a query's terms, sum their postings, keep the best documents."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from types import MappingProxyType
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from r2med.atomic import let_go
from r2med.errors import DamagedError
from r2med.retrieve.bm25.analyzers import find_analyzer
from r2med.retrieve.bm25.index import (
    Index,
    build_index,
    compiled,
    index_path,
    read_index,
    write_index,
)
from r2med.retrieve.bm25.words import Texts, in_threads
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.topk import best_places
from r2med.runs import Run
from r2med.settings import setting
from r2med.tasks.task import Corpus, Queries, Task

Weights = NDArray[np.float64]
Rows = NDArray[np.int64]
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


@dataclass(frozen=True)
class Bm25Retriever:
    """A BM25 variant; its fields are the settings of `variants.toml`."""

    analyzer: Literal["lucene", "nano"] = setting()
    k1: float = setting(least=0)
    b: float = setting(least=0, most=1)
    idf: Literal["lucene", "robertson"] = setting()
    query: Literal["weighted", "bag"] = setting()
    """A text that is weighted as documents are, or a bag of words."""
    unmatched: Literal["fill", "drop"] = setting()
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
    """A corpus under one variant: its index, with what every posting is worth worked out."""

    def __init__(self, retriever: Bm25Retriever, corpus: Corpus) -> None:
        self._retriever = retriever
        self._analyzer = find_analyzer(retriever.analyzer)
        self._corpus = corpus
        self._index, self._origin = index, _ = self._obtain()
        self._idf = IDFS[retriever.idf](np.diff(index.offsets), len(index))
        # What each posting's f occurrences are worth, f / (f + norm): in place and in blocks.
        norms = self._norms(index.lengths)
        self._impacts = impacts = np.empty(len(index.rows))

        def fill(start: int) -> None:
            block = slice(start, start + _BLOCK)
            counts, weights = index.counts[block].astype(np.float64), impacts[block]
            norms.take(index.rows[block], out=weights, mode="clip")
            np.divide(counts, np.add(counts, weights, out=weights), out=weights)

        deque(in_threads(fill, range(0, len(impacts), _BLOCK)), maxlen=0)
        few = len(index.rows) <= np.iinfo(np.int32).max
        self._rows = index.rows if few else index.rows.astype(np.int64)
        compiled()  # Before two threads ask for it.

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
        repeats = len(last_rows) < len(self._corpus)
        drops = self._retriever.unmatched == "drop"

        def ranked(asked: Sequence[QueryTerms]) -> list[tuple[Rows, Weights]]:
            # One space to work in for all queries, because fresh memory costs more than sums.
            sums, lists = np.empty(len(self._index)), []
            for terms, counts in asked:
                self._add_up(sums, terms, counts)
                scores = sums[last_rows] if repeats else sums
                places = best_places(scores, depth)
                best = scores[places]
                lists.append((places[best > 0], best[best > 0]) if drops else (places, best))
            return lists

        asked = self._query_terms(queries.texts)
        parts = in_threads(ranked, iter(lambda: list(islice(asked, _QUERIES_A_PART)), []))
        nothing = (np.empty(0, dtype=np.int64), np.empty(0))
        documents, scores = zip(nothing, *chain.from_iterable(parts), strict=True)
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
        row = int(self._corpus.last_rows[code])
        terms, counts = next(self._query_terms(pa.array([query], type=pa.large_string())))
        added = {}
        for term, weight in zip(terms, self._query_weights(terms, counts), strict=True):
            start, end = self._index.offsets[term : term + 2]
            place = start + np.searchsorted(self._index.rows[start:end], row)
            if place < end and self._index.rows[place] == row:
                added[self._index.words.text(int(term))] = float(weight * self._impacts[place])
        return added

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

    def _norms(self, lengths: ArrayLike) -> Weights:
        """What a text of length L asks for half of a term's weight: k1 (1 - b + b L / average)."""
        longer = np.asarray(lengths, dtype=np.float64) / (self._index.average_length or 1.0)
        b = self._retriever.b
        norms: Weights = self._retriever.k1 * (1.0 - b + b * longer)
        return norms

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

    def _query_weights(self, terms: Rows, counts: Rows) -> Weights:
        idf = self._idf[terms]
        if self._retriever.query == "bag":
            return idf * counts
        return idf * idf * (counts / (counts + self._norms(counts.sum())))

    def _query_terms(self, texts: Texts) -> Iterator[QueryTerms]:
        """Each query's known terms and their counts; unknown terms are as if never said."""
        queries, index = self._analyzer.analyze(texts), self._index
        numbers = index.find(queries.keys)[queries.terms]
        rows = np.repeat(np.arange(len(queries)), np.diff(queries.offsets))
        known = numbers >= 0
        bits = max(len(index.keys), 1).bit_length()
        pairs, counts = np.unique(rows[known] << bits | numbers[known], return_counts=True)
        bounds = np.searchsorted(pairs, np.arange(len(queries) + 1) << bits)
        pairs &= (1 << bits) - 1
        for first, last in pairwise(bounds):
            yield pairs[first:last], counts[first:last]
