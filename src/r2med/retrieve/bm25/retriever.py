"""BM25 as a first stage: weight the terms of a query, sum their postings, rank the documents."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from r2med.algorithms import versions
from r2med.errors import DamagedError
from r2med.execution.resources import Resources
from r2med.retrieve.bm25.analyzers import TermStream, find_analyzer
from r2med.retrieve.bm25.index import (
    Index,
    build_index,
    index_path,
    load_sparse_loops,
    read_index,
    write_index,
)
from r2med.retrieve.bm25.words import Texts
from r2med.retrieve.threads import map_in_threads
from r2med.retrieve.topk import best_indexes
from r2med.runs import Run
from r2med.runs.run import offsets_of
from r2med.settings import setting
from r2med.tasks.task import Corpus, Queries, Task

Weights = NDArray[np.float64]
Rows = NDArray[np.int64]

#: Queries that a thread takes at once: the fewer, the more evenly threads are loaded.
_QUERIES_PER_THREAD = 16
#: Postings that are weighted at once.
_BLOCK_POSTINGS = 1 << 17
#: Weights of all postings are computed once unless there are more than these, which take 1 GiB.
_MOST_STORED_IMPACTS = 1 << 27


@dataclass(frozen=True, eq=False)
class QueryTerms:
    """The numbers of a query's terms in the index, ascending, and their counts in the query."""

    terms: Rows
    counts: Rows


@dataclass(frozen=True, eq=False)
class RankedDocuments:
    """The best documents of a query, best first."""

    documents: Rows
    scores: Weights


def lucene_idf(frequencies: Rows, documents: int) -> Weights:
    """Return ln(N + 1) - ln(df + 0.5), which is never negative."""
    weights: Weights = np.log(documents + 1) - np.log(frequencies + 0.5)
    return weights


def robertson_idf(frequencies: Rows, documents: int) -> Weights:
    """Return ln((N - df + 0.5) / (df + 0.5)); 0 for a term in more than half of the documents."""
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
    """How the terms of a query are weighted: like those of a document, or by their counts."""
    unmatched: Literal["fill", "drop"] = setting()
    """Whether documents without any term of the query fill up a ranking, or are left out."""

    @property
    def identity(self) -> Mapping[str, object]:
        """Everything that decides rankings, except the settings.

        These are the versions of the analyzer and of the scoring.
        """
        analysis = find_analyzer(self.analyzer).identity
        return {"analysis": analysis, "algorithms": versions("bm25")}

    def discard_index(self, task: Task) -> None:
        """Delete the cached index of a task's corpus, so that the next search builds it again."""
        index_path(task.corpus.hash, find_analyzer(self.analyzer).identity).unlink(missing_ok=True)

    def prepare(self, task: Task) -> Bm25Searcher:
        """Read the stored index of the task's corpus, or build and store one."""
        return Bm25Searcher(self, task.corpus)


def build(settings: Bm25Retriever, resources: Resources) -> Bm25Retriever:
    """Return `settings` itself, which is already a retriever; `resources` is not used."""
    return settings


class Bm25Searcher:
    """A corpus that one variant of BM25 can search: its index, and the weights of the postings."""

    def __init__(self, retriever: Bm25Retriever, corpus: Corpus) -> None:
        self._retriever = retriever
        self._analyzer = find_analyzer(retriever.analyzer)
        self._corpus = corpus
        self._index, self._origin = self._obtain_index()
        frequencies = np.diff(self._index.offsets)
        self._idf = IDFS[retriever.idf](frequencies, len(self._index))
        self._document_norms = self._norms(self._index.lengths)
        self._impacts: Weights | None = None
        if len(self._index.rows) <= _MOST_STORED_IMPACTS:
            self._impacts = self._compute_impacts()
        load_sparse_loops()  # before two threads need it

    def _obtain_index(self) -> tuple[Index, str]:
        """The stored index, or a new one; and a text that says which."""
        path = index_path(self._corpus.hash, self._analyzer.identity)
        origin = "built"
        try:
            return read_index(path), "cached"
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (DamagedError, OSError) as problem:
            origin = f"rebuilt: {problem}"
        index = build_index(TermStream(self._analyzer, self._corpus.texts))
        try:
            write_index(index, path)
        except OSError as problem:
            origin += f", not kept ({problem})"
        return index, origin

    def search(self, queries: Queries, *, depth: int) -> Run:
        """Return the best documents of every query; ties are in the order of the corpus.

        If a document id occurs in several rows, the score of the last row counts, but ties are
        ordered by the first.
        """
        query_terms = list(self._query_terms(queries.texts))
        parts = [
            query_terms[start : start + _QUERIES_PER_THREAD]
            for start in range(0, len(query_terms), _QUERIES_PER_THREAD)
        ]
        ranked: list[RankedDocuments] = []
        for lists in map_in_threads(lambda part: self._rank_queries(part, depth), parts):
            ranked += lists
        documents = [np.empty(0, dtype=np.int64), *(entry.documents for entry in ranked)]
        scores = [np.empty(0), *(entry.scores for entry in ranked)]
        return Run(
            query_ids=queries.ids,
            document_ids=self._corpus.document_ids,
            offsets=offsets_of([len(entry.documents) for entry in ranked]),
            documents=np.concatenate(documents).astype(np.int32),
            scores=np.concatenate(scores),
        )

    def _rank_queries(self, queries: Sequence[QueryTerms], depth: int) -> list[RankedDocuments]:
        last_rows = self._corpus.last_rows
        has_repeated_ids = len(last_rows) < len(self._corpus)
        # One array for the sums of all queries, because new memory costs more than the sums.
        sums = np.empty(len(self._index))
        ranked = []
        for query in queries:
            self._score_documents(query, sums)
            scores = sums[last_rows] if has_repeated_ids else sums
            documents = best_indexes(scores, depth)
            best_scores = scores[documents]
            if self._retriever.unmatched == "drop":
                is_matched = best_scores > 0
                documents, best_scores = documents[is_matched], best_scores[is_matched]
            ranked.append(RankedDocuments(documents, best_scores))
        return ranked

    def contributions(self, query: str, document_id: str) -> dict[str, float]:
        """Return what each term of a query adds to a document's score."""
        code = self._corpus.document_ids.index(document_id).as_py()
        row = int(self._corpus.last_rows[code])
        query_terms = next(self._query_terms(pa.array([query], type=pa.large_string())))
        weights = self._query_weights(query_terms)
        contributions = {}
        for term, weight in zip(query_terms.terms, weights, strict=True):
            start, end = self._index.offsets[term : term + 2]
            position = start + np.searchsorted(self._index.rows[start:end], row)
            if position < end and self._index.rows[position] == row:
                impact = self._impacts_of(slice(position, position + 1))[0]
                contributions[self._index.words.text(int(term))] = float(weight * impact)
        return contributions

    def facts(self) -> Mapping[str, object]:
        """Return facts about the index, and the terms of the first document, for the record."""
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
        """Return k1 (1 - b + b L / average) for texts of these lengths L.

        A term that occurs so often in the text has half of its highest weight.
        """
        relative_lengths = np.asarray(lengths, dtype=np.float64)
        relative_lengths = relative_lengths / (self._index.average_length or 1.0)
        b = self._retriever.b
        norms: Weights = self._retriever.k1 * (1.0 - b + b * relative_lengths)
        return norms

    def _compute_impacts(self) -> Weights:
        """Return the impacts of all postings, computed in blocks that fit the processor's cache."""
        impacts = np.empty(len(self._index.rows))

        def fill(start: int) -> None:
            block = slice(start, start + _BLOCK_POSTINGS)
            self._impacts_of(block, out=impacts[block])

        deque(map_in_threads(fill, range(0, len(impacts), _BLOCK_POSTINGS)), maxlen=0)
        return impacts

    def _impacts_of(self, postings: slice, out: Weights | None = None) -> Weights:
        """Return the impact, count / (count + norm), of each of these postings."""
        if self._impacts is not None:
            return self._impacts[postings]
        counts = self._index.counts[postings].astype(np.float64)
        out = np.empty(len(counts)) if out is None else out
        self._document_norms.take(self._index.rows[postings], out=out, mode="clip")
        np.add(counts, out, out=out)
        return np.divide(counts, out, out=out)

    def _score_documents(self, query: QueryTerms, sums: Weights) -> None:
        """Write the score of every document to `sums`: the sum of the terms' weights times impacts.

        The terms are added in the same order for every document (the last one first), so that equal
        documents have equal scores.
        """
        terms = query.terms[::-1]
        weights = self._query_weights(query)[::-1]
        sums.fill(0.0)
        if self._impacts is None:
            for term, weight in zip(terms, weights, strict=True):
                self._add_term(sums, term, weight)
            return
        # The terms are columns of a sparse matrix. To skip the columns between two of them without
        # copying postings, each term is followed by an empty column: its bounds run backwards.
        columns = np.zeros(2 * len(terms) + 1, dtype=np.int32)
        columns[0:-1:2] = self._index.offsets[terms]
        columns[1::2] = self._index.offsets[terms + 1]
        factors = np.zeros(2 * len(terms))
        factors[::2] = weights
        load_sparse_loops().csc_matvec(
            len(sums), len(factors), columns, self._index.rows, self._impacts, factors, sums
        )

    def _add_term(self, sums: Weights, term: int, weight: float) -> None:
        """Add the scores of one term to `sums`.

        The impacts are computed in blocks and not stored.
        """
        start, end = self._index.offsets[term : term + 2]
        factor = np.array([weight])
        for block_start in range(start, end, _BLOCK_POSTINGS):
            block = slice(block_start, min(block_start + _BLOCK_POSTINGS, end))
            rows, impacts = self._index.rows[block], self._impacts_of(block)
            bounds = np.array([0, len(rows)], dtype=np.int32)
            load_sparse_loops().csc_matvec(len(sums), 1, bounds, rows, impacts, factor, sums)

    def _query_weights(self, query: QueryTerms) -> Weights:
        idf = self._idf[query.terms]
        if self._retriever.query == "bag":
            return idf * query.counts
        saturation = query.counts / (query.counts + self._norms(query.counts.sum()))
        return idf * idf * saturation

    def _query_terms(self, texts: Texts) -> Iterator[QueryTerms]:
        """Yield the terms of each query with their counts.

        Terms that the index lacks are ignored.
        """
        queries = self._analyzer.analyze(texts)
        terms = self._index.find(queries.keys)[queries.terms]
        rows = np.repeat(np.arange(len(queries)), np.diff(queries.offsets))
        is_known = terms >= 0
        # Row and term in one number, so that one call counts and sorts them.
        term_bits = max(len(self._index.keys), 1).bit_length()
        pairs = rows[is_known] << term_bits | terms[is_known]
        pairs, counts = np.unique(pairs, return_counts=True)
        bounds = np.searchsorted(pairs, np.arange(len(queries) + 1) << term_bits)
        terms = pairs & ((1 << term_bits) - 1)
        for first, last in pairwise(bounds):
            yield QueryTerms(terms[first:last], counts[first:last])
