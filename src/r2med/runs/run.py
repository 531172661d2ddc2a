"""Ranked lists with scores, as arrays: the output of retrievers and the input of measures.

A tie order defines how a list is sorted before it is measured; protocols use different ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.errors import DataError, UsageError, nearest
from r2med.tables import html_table

_SHOWN_QUERIES, _SHOWN_DOCUMENTS = 5, 5


@dataclass(frozen=True, eq=False)
class Run:
    """For each query a list of documents, best first.

    The list of query `i` is `documents[offsets[i]:offsets[i + 1]]`, indexes into `document_ids`;
    `scores` has the same positions. A list may be empty, but never has a document twice.
    """

    query_ids: pa.LargeStringArray
    document_ids: pa.LargeStringArray
    offsets: NDArray[np.int64]
    documents: NDArray[np.int32]
    scores: NDArray[np.float64]

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.query_ids)

    def __repr__(self) -> str:
        return f"Run({len(self):,} queries, up to {int(self.lengths.max(initial=0)):,} documents)"

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the first documents of the first queries."""
        first = self.query_ids.to_pylist()[:_SHOWN_QUERIES]
        rows = []
        for query in first:
            best = self.ranked_documents(query)[:_SHOWN_DOCUMENTS]
            rows.append([query, ", ".join(best)])
        return html_table(repr(self), ["query", "best documents"], rows)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of documents of each query."""
        return np.diff(self.offsets)

    @property
    def query_rows(self) -> NDArray[np.int64]:
        """For every entry of the lists, the index of its query."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.lengths)

    @property
    def ranks(self) -> NDArray[np.int64]:
        """For every entry of the lists, its 1-based rank in the list."""
        positions = np.arange(len(self.documents), dtype=np.int64)
        ranks: NDArray[np.int64] = positions - np.repeat(self.offsets[:-1], self.lengths) + 1
        return ranks

    def ranking(self, query_id: str) -> list[tuple[str, float]]:
        """Return the (document id, score) pairs of a query, best first.

        Empty for an unknown query.
        """
        row = self.query_ids.index(query_id).as_py()
        if row < 0:
            return []
        part = slice(self.offsets[row], self.offsets[row + 1])
        ids = self.document_ids.take(pa.array(self.documents[part])).to_pylist()
        return list(zip(ids, self.scores[part].tolist(), strict=True))

    def ranked_documents(self, query_id: str) -> list[str]:
        """Return the document ids of a query, best first."""
        return [document for document, _ in self.ranking(query_id)]

    def ranks_of(self, query_id: str) -> dict[str, int]:
        """Return the 1-based rank of every document of a query, by document id, best first."""
        documents = self.ranked_documents(query_id)
        return {document: rank for rank, document in enumerate(documents, start=1)}

    def truncate(self, depth: int) -> Run:
        """Return a run with the first `depth` documents of every list."""
        return self.take(np.flatnonzero(self.ranks <= depth))

    def take(self, entries: NDArray[np.int64]) -> Run:
        """Return a run of these entries, in the given order.

        `entries` are indexes of `documents` and `scores`, and must be grouped by query.
        """
        return self._of(self.query_ids, self.query_rows[entries], entries)

    def over(self, query_ids: pa.LargeStringArray, rows: NDArray[np.int64]) -> Run:
        """Return a run with the queries `query_ids`; `rows` has the new index of each old query.

        Queries with the index -1 are left out, and queries that are new have an empty list.
        """
        new_rows = rows[self.query_rows]
        dropped = int((new_rows < 0).sum())
        entries = np.argsort(new_rows, kind="stable")[dropped:]
        return self._of(query_ids, new_rows[entries], entries)

    def _of(
        self, query_ids: pa.LargeStringArray, rows: NDArray[np.int64], entries: NDArray[np.int64]
    ) -> Run:
        """Return a run of these entries; `rows` has the index in `query_ids` for each of them."""
        return replace(
            self,
            query_ids=query_ids,
            offsets=offsets_of(np.bincount(rows, minlength=len(query_ids))),
            documents=self.documents[entries],
            scores=self.scores[entries],
        )

    def to_table(self) -> pa.Table:
        """Return a table with one row per entry: query_id, document_id, rank, score."""
        return pa.table(
            {
                "query_id": self.query_ids.take(pa.array(self.query_rows)),
                "document_id": self.document_ids.take(pa.array(self.documents)),
                "rank": pa.array(self.ranks.astype(np.int32)),
                "score": pa.array(self.scores),
            }
        )

    @classmethod
    def from_columns(
        cls,
        query_ids: pa.Array | Sequence[str],
        document_ids: pa.Array | Sequence[str],
        scores: NDArray[np.float64] | Sequence[float],
    ) -> Run:
        """Make a run from columns with one row per entry; each query's rows keep their order."""
        queries, documents = (
            _strings(ids).dictionary_encode() for ids in (query_ids, document_ids)
        )
        rows = queries.indices.to_numpy(zero_copy_only=False)
        codes = documents.indices.to_numpy(zero_copy_only=False)
        distinct = distinct_entries(rows, codes, len(documents.dictionary))
        if len(distinct) < len(rows):
            entry = int(np.setdiff1d(np.arange(len(rows)), distinct)[0])
            raise DataError(
                f"document {documents[entry].as_py()!r} appears twice for query "
                f"{queries[entry].as_py()!r}; a ranking holds each document once."
            )
        order = np.argsort(rows, kind="stable")
        return cls(
            query_ids=queries.dictionary,
            document_ids=documents.dictionary,
            offsets=offsets_of(np.bincount(rows, minlength=len(queries.dictionary))),
            documents=codes[order].astype(np.int32),
            scores=np.asarray(scores, dtype=np.float64)[order],
        )

    @classmethod
    def from_lists(cls, lists: Mapping[str, Iterable[tuple[str, float]]]) -> Run:
        """Make a run from a mapping of query id to (document id, score) pairs, best first."""
        queries: list[str] = []
        documents: list[str] = []
        scores: list[float] = []
        for query, ranking in lists.items():
            for document, score in ranking:
                queries.append(query)
                documents.append(document)
                scores.append(score)
        run = cls.from_columns(queries, documents, scores)
        all_queries = pa.array(list(lists), pa.large_string())
        return run.over(all_queries, find_positions(run.query_ids, all_queries))

    @classmethod
    def from_trec(cls, path: str | Path) -> Run:
        """Read a TREC run file (`query Q0 document rank score tag`), plain or gzipped."""
        from r2med.runs.files import read_run

        return read_run(Path(path), form="trec")[0]

    def to_trec(self, path: str | Path, *, tag: str = "r2med") -> None:
        """Write a TREC run file; scores keep enough digits to read back equal."""
        from r2med.runs.files import write_trec

        write_trec(self, Path(path), tag=tag)

    @classmethod
    def from_parquet(cls, path: str | Path) -> Run:
        """Read a file that `to_parquet` wrote, or any Parquet file with the same columns."""
        from r2med.runs.files import read_run

        return read_run(Path(path), form="parquet")[0]

    def to_parquet(self, path: str | Path) -> None:
        """Write `to_table` as Parquet; the metadata also lists the queries with an empty list."""
        from r2med.runs.files import write_parquet

        write_parquet(self, Path(path))


def distinct_entries(
    queries: NDArray[np.integer[Any]],
    documents: NDArray[np.int32],
    width: int,
    *,
    last: bool = False,
) -> NDArray[np.int64]:
    """Return the first entry of each pair of query and document, or with `last` the last one.

    The indexes of the entries are ascending. `width` must exceed all numbers in `documents`.
    """
    pairs = queries.astype(np.int64) * max(width, 1) + documents
    if last:
        _, from_end = np.unique(pairs[::-1], return_index=True)
        entries = len(pairs) - 1 - from_end
    else:
        _, entries = np.unique(pairs, return_index=True)
    return np.sort(entries).astype(np.int64)


def find_positions(ids: pa.Array, all_ids: pa.Array) -> NDArray[np.int64]:
    """Return the index of each id in `all_ids`; -1 for an id that is not in `all_ids`."""
    matches = pc.index_in(ids, value_set=all_ids).fill_null(-1)
    positions: NDArray[np.int64] = matches.to_numpy(zero_copy_only=False).astype(np.int64)
    return positions


def offsets_of(lengths: NDArray[Any] | Sequence[int]) -> NDArray[np.int64]:
    """Return where consecutive lists of these lengths begin, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _strings(values: pa.Array | Sequence[str]) -> pa.LargeStringArray:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values.cast(pa.large_string())
    return pa.array(values, pa.large_string())


TieOrder = Literal["trec", "id-ascending", "list"]
"""`trec`: score as float32 descending, then document id descending, as trec_eval does.
`id-ascending`: score descending, then id ascending (dense runs of the Nano protocol).
`list`: the order of the run, whatever its scores (candidate lists of the Nano protocol)."""


def sort_lists(run: Run, ties: TieOrder = "trec") -> Run:
    """Return the run with every list sorted in a tie order."""
    if ties not in get_args(TieOrder):
        raise UsageError(f"tie order {ties!r} is not known. {nearest(ties, get_args(TieOrder))}")
    if ties == "list":
        return run
    scores = trec_scores(run.scores) if ties == "trec" else run.scores
    entries = _unsorted_entries(run, scores)
    if not len(entries):
        return run
    ids = id_ranks(run, entries)
    if ties == "trec":
        ids = -ids
    rows = run.query_rows[entries]
    order = np.arange(len(scores))
    order[entries] = entries[np.lexsort((ids, -scores[entries], rows))]
    return run.take(order)


def _unsorted_entries(run: Run, scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the entries of lists with ties or not in order; only these need to be sorted."""
    rows = run.query_rows
    before = np.flatnonzero(~(scores[1:] < scores[:-1]))
    of_one_query = before[rows[before] == rows[before + 1]]
    is_unsorted = np.zeros(len(run), dtype=np.bool_)
    is_unsorted[rows[of_one_query]] = True
    return np.flatnonzero(is_unsorted[rows])


def trec_scores(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return scores as float32, as trec_eval compares them, so that close scores are tied."""
    with np.errstate(over="ignore"):
        return scores.astype(np.float32)


def id_ranks(run: Run, entries: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return the position of each entry's document id among the ids sorted by their bytes."""
    documents = run.documents if entries is None else run.documents[entries]
    codes, inverse = np.unique(documents, return_inverse=True)
    names = run.document_ids.take(pa.array(codes)).cast(pa.large_binary())
    ranks = np.empty(len(codes), dtype=np.int64)
    ranks[pc.sort_indices(names).to_numpy()] = np.arange(len(codes))
    by_entry: NDArray[np.int64] = ranks[inverse]
    return by_entry
