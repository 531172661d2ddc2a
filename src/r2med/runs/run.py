"""Ranked lists with scores, as arrays: what every retriever returns and every measure reads.

A tie order says how a list is sorted before it is measured; the protocols differ in it.
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
from r2med.tabular import html_table

_SHOWN_QUERIES, _SHOWN_DOCUMENTS = 5, 5


@dataclass(frozen=True, eq=False)
class Run:
    """For each query a list of documents, best first.

    The list of query `i` is `documents[offsets[i]:offsets[i + 1]]`: codes into `document_ids`,
    with `scores` beside them. A query may have an empty list, never a document twice.
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
        """For notebooks: the first documents of the first queries."""
        first = self.query_ids.to_pylist()[:_SHOWN_QUERIES]
        rows = [[query, ", ".join(self.listed(query)[:_SHOWN_DOCUMENTS])] for query in first]
        return html_table(repr(self), ["query", "best documents"], rows)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many documents each query has."""
        return np.diff(self.offsets)

    @property
    def query_rows(self) -> NDArray[np.int64]:
        """For every ranked entry, the position of its query."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.lengths)

    @property
    def ranks(self) -> NDArray[np.int64]:
        """For every ranked entry, its 1-based place in the list of its query."""
        places = np.arange(len(self.documents), dtype=np.int64)
        ranks: NDArray[np.int64] = places - np.repeat(self.offsets[:-1], self.lengths) + 1
        return ranks

    def ranking(self, query_id: str) -> list[tuple[str, float]]:
        """One query's list as (document id, score) pairs; none for a query that the run lacks."""
        row = self.query_ids.index(query_id).as_py()
        if row < 0:
            return []
        part = slice(self.offsets[row], self.offsets[row + 1])
        ids = self.document_ids.take(pa.array(self.documents[part])).to_pylist()
        return list(zip(ids, self.scores[part].tolist(), strict=True))

    def listed(self, query_id: str) -> list[str]:
        """One query's documents, best first."""
        return [document for document, _ in self.ranking(query_id)]

    def ranks_of(self, query_id: str) -> dict[str, int]:
        """The rank of every document in one query's list, the best first."""
        return {document: rank for rank, document in enumerate(self.listed(query_id), start=1)}

    def truncated(self, depth: int) -> Run:
        """The first `depth` documents of every list."""
        return self.take(np.flatnonzero(self.ranks <= depth))

    def take(self, entries: NDArray[np.int64]) -> Run:
        """The run of these entries alone; each list has them in the order in which they are given.

        Entries are places in `documents` and `scores`, of one query after the other.
        """
        return self._of(self.query_ids, self.query_rows[entries], entries)

    def over(self, query_ids: pa.LargeStringArray, rows: NDArray[np.int64]) -> Run:
        """The run over other queries: `rows` says where among them each of its own stands.

        Queries that are placed nowhere (-1) are left out, new ones have an empty list.
        """
        places = rows[self.query_rows]
        entries = np.argsort(places, kind="stable")[int((places < 0).sum()) :]
        return self._of(query_ids, places[entries], entries)

    def _of(
        self, query_ids: pa.LargeStringArray, rows: NDArray[np.int64], entries: NDArray[np.int64]
    ) -> Run:
        """Some of the entries; `rows` has for each the position of its query."""
        return replace(
            self,
            query_ids=query_ids,
            offsets=offsets_of(np.bincount(rows, minlength=len(query_ids))),
            documents=self.documents[entries],
            scores=self.scores[entries],
        )

    def to_table(self) -> pa.Table:
        """Long form, one row per entry: query_id, document_id, rank, score."""
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
        """From parallel columns, one row per entry; each query's rows keep their order."""
        queries, documents = (
            _strings(ids).dictionary_encode() for ids in (query_ids, document_ids)
        )
        rows, codes = (each.indices.to_numpy(zero_copy_only=False) for each in (queries, documents))
        kept = distinct(rows, codes, len(documents.dictionary))
        if len(kept) < len(rows):
            entry = int(np.setdiff1d(np.arange(len(rows)), kept)[0])
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
        """From a mapping of query id to (document id, score) pairs, best first."""
        flat = [(query, *pair) for query, ranked in lists.items() for pair in ranked]
        queries, documents, scores = zip(*flat, strict=True) if flat else ((), (), ())
        run = cls.from_columns(queries, documents, scores)
        every = pa.array(list(lists), pa.large_string())
        return run.over(every, places_of(run.query_ids, every))

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
        """Read what `to_parquet` wrote, or any Parquet file with its columns."""
        from r2med.runs.files import read_run

        return read_run(Path(path), form="parquet")[0]

    def to_parquet(self, path: str | Path) -> None:
        """Write the long form; queries with an empty list are kept in the file's metadata."""
        from r2med.runs.files import write_parquet

        write_parquet(self, Path(path))


def distinct(
    queries: NDArray[np.integer[Any]],
    documents: NDArray[np.int32],
    width: int,
    *,
    last: bool = False,
) -> NDArray[np.int64]:
    """The entries that are the first, or the last, of their query and document; in order.

    `width` is more than the largest code of a document.
    """
    pairs = queries.astype(np.int64) * max(width, 1) + documents
    _, kept = np.unique(pairs[::-1] if last else pairs, return_index=True)
    entries: NDArray[np.int64] = np.sort(len(pairs) - 1 - kept if last else kept)
    return entries


def places_of(wanted: pa.Array, known: pa.Array) -> NDArray[np.int64]:
    """The position of each wanted id among the known ones, -1 where it is not there."""
    matches = pc.index_in(wanted, value_set=known).fill_null(-1)
    places: NDArray[np.int64] = matches.to_numpy(zero_copy_only=False).astype(np.int64)
    return places


def offsets_of(lengths: NDArray[Any] | Sequence[int]) -> NDArray[np.int64]:
    """Where lists of these lengths begin when they stand one after the other, and the end."""
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
`list`: as the run has it, scores unread (candidate lists of the Nano protocol)."""


def ordered(run: Run, ties: TieOrder = "trec") -> Run:
    """The run with every list in the given order."""
    if ties not in get_args(TieOrder):
        raise UsageError(f"tie order {ties!r} is not known. {nearest(ties, get_args(TieOrder))}")
    if ties == "list":
        return run
    scores = trec_scores(run.scores) if ties == "trec" else run.scores
    # Only lists that are not in order or have ties, since sorting all would take most time.
    rows, level = run.query_rows, np.flatnonzero(~(scores[1:] < scores[:-1]))
    unsettled = np.zeros(len(run), dtype=np.bool_)
    unsettled[rows[level][rows[level] == rows[level + 1]]] = True
    entries = np.flatnonzero(unsettled[rows])
    if not len(entries):
        return run
    names = name_places(run, entries)
    if ties == "trec":
        names = -names
    order = np.arange(len(scores))
    order[entries] = entries[np.lexsort((names, -scores[entries], rows[entries]))]
    return run.take(order)


def trec_scores(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Scores as trec_eval holds them: what float32 cannot tell apart is tied."""
    with np.errstate(over="ignore"):
        return scores.astype(np.float32)


def name_places(run: Run, entries: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """For each of some entries, the place of its document id among theirs in byte order."""
    documents = run.documents if entries is None else run.documents[entries]
    used, inverse = np.unique(documents, return_inverse=True)
    names = run.document_ids.take(pa.array(used)).cast(pa.large_binary())
    places = np.empty(len(used), dtype=np.int64)
    places[pc.sort_indices(names).to_numpy()] = np.arange(len(used))
    by_entry: NDArray[np.int64] = places[inverse]
    return by_entry
