"""Ranked lists with scores, as arrays: what every retriever returns and every measure reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


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
        """One query's list as (document id, score) pairs."""
        row = self.query_ids.index(query_id).as_py()
        if row < 0:
            raise KeyError(f"no query {query_id!r} in this run")
        part = slice(self.offsets[row], self.offsets[row + 1])
        ids = self.document_ids.take(pa.array(self.documents[part])).to_pylist()
        return list(zip(ids, self.scores[part].tolist(), strict=True))

    def truncated(self, depth: int) -> Run:
        """The first `depth` documents of every list."""
        kept = self.ranks <= depth
        lengths = np.minimum(self.lengths, depth)
        return Run(
            query_ids=self.query_ids,
            document_ids=self.document_ids,
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            documents=self.documents[kept],
            scores=self.scores[kept],
        )

    def to_table(self) -> pa.Table:
        """Long form, a row an entry: query_id, document_id, rank, score."""
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
        """From parallel columns, a row an entry; each query's rows keep their order."""
        queries = _strings(query_ids).dictionary_encode()
        documents = _strings(document_ids).dictionary_encode()
        rows = queries.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(rows, kind="stable")
        lengths = np.bincount(rows, minlength=len(queries.dictionary))
        return cls(
            query_ids=queries.dictionary,
            document_ids=documents.dictionary,
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            documents=documents.indices.to_numpy(zero_copy_only=False)[order].astype(np.int32),
            scores=np.asarray(scores, dtype=np.float64)[order],
        )

    @classmethod
    def from_lists(cls, lists: Mapping[str, Iterable[tuple[str, float]]]) -> Run:
        """From a mapping of query id to (document id, score) pairs, best first."""
        pairs = {query: list(ranked) for query, ranked in lists.items()}
        lengths = [len(ranked) for ranked in pairs.values()]
        flat = [pair for ranked in pairs.values() for pair in ranked]
        documents = _strings([document for document, _ in flat]).dictionary_encode()
        return cls(
            query_ids=_strings(list(pairs)),
            document_ids=documents.dictionary,
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            documents=documents.indices.to_numpy(zero_copy_only=False).astype(np.int32),
            scores=np.array([score for _, score in flat], dtype=np.float64),
        )

    @classmethod
    def from_trec(cls, path: str | Path) -> Run:
        """Read a TREC run file (`query Q0 document rank score tag`), plain or gzipped."""
        from r2med.runs.trec import read_trec

        return read_trec(Path(path))

    def to_trec(self, path: str | Path, *, tag: str = "r2med") -> None:
        """Write a TREC run file; scores keep enough digits to read back equal."""
        from r2med.runs.trec import write_trec

        write_trec(self, Path(path), tag=tag)

    @classmethod
    def from_parquet(cls, path: str | Path) -> Run:
        """Read what `to_parquet` wrote, or any Parquet file with its columns."""
        from r2med.runs.parquet import read_parquet

        return read_parquet(Path(path))

    def to_parquet(self, path: str | Path) -> None:
        """Write the long form; queries with an empty list are kept in the file's metadata."""
        from r2med.runs.parquet import write_parquet

        write_parquet(self, Path(path))


def _strings(values: pa.Array | Sequence[str]) -> pa.LargeStringArray:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values.cast(pa.large_string())
    return pa.array(values, type=pa.large_string())
