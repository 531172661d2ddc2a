"""The candidate subsets of a Nano task: lists of document ids, best first, without scores.

The hybrid subset was published with a safeguard: where its 100 candidates hold no positive, one
positive stands at rank 101. It leaks the answer into the candidates, so it is left out unless
asked for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from r2med.errors import DataError, MissingError, UsageError, nearest
from r2med.runs import Run
from r2med.tasks.fetch.provenance import NANO_CONFIGS
from r2med.tasks.reading.lines import arrow_errors
from r2med.tasks.reading.source import split_files
from r2med.tasks.task import Task

#: Candidates of a published hybrid list; what stands below was put there as a safeguard.
SAFEGUARD_RANK = 101
_HYBRID = "reranking_hybrid"
_COLUMNS = ("query-id", "corpus-ids")
_ID_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer)
_EXPECTED = (
    "candidates have the columns query-id (an id) and corpus-ids (a list of document ids, best "
    "first)."
)


@dataclass(frozen=True)
class CandidateSettings:
    """What `candidates:NAME` may say."""

    name: str
    safeguard: bool

    def __post_init__(self) -> None:
        """Refuse what cannot be the name of a folder beside the task's data."""
        if not self.name:
            raise UsageError("candidates: what to read is missing, as in candidates:bm25.")
        if not re.fullmatch(r"[\w.-]{1,100}", self.name) or self.name.startswith("."):
            raise UsageError(
                f"candidates:{self.name[:60]}: expected the name of a subset, as in "
                "candidates:bm25."
            )


@dataclass(frozen=True)
class Subset:
    """One candidate subset of one task, by the files that hold it."""

    name: str
    files: tuple[Path, ...]

    def fingerprint(self) -> str:
        """sha256 over the files' contents."""
        digest = hashlib.sha256()
        for file in self.files:
            with file.open("rb") as handle:
                digest.update(hashlib.file_digest(handle, "sha256").digest())
        return digest.hexdigest()

    def read(self, *, safeguard: bool) -> Run:
        """The lists, with falling scores in place of the ones that were not published."""
        parts = [_read(file) for file in self.files]
        queries = pa.chunked_array([part[0] for part in parts])
        documents = pa.chunked_array([part[1] for part in parts])
        ranks = np.concatenate([part[2] for part in parts])
        run = Run.from_columns(queries, documents, -ranks.astype(np.float64))
        guarded = self.name == _HYBRID and not safeguard
        return run.truncated(SAFEGUARD_RANK - 1) if guarded else run

    def safeguards(self) -> Mapping[str, str]:
        """For each query that has one, the positive that was appended below the list."""
        if self.name != _HYBRID:
            return {}
        run = self.read(safeguard=True)
        places = np.flatnonzero(run.ranks >= SAFEGUARD_RANK)
        queries = run.query_ids.take(pa.array(run.query_rows[places])).to_pylist()
        documents = run.document_ids.take(pa.array(run.documents[places])).to_pylist()
        return dict(zip(queries, documents, strict=True))


def find_subset(task: Task, name: str) -> Subset:
    """The subset of a task; the error says which there are."""
    split = split_of(task)
    files = tuple(split_files(task.source, name, split))
    if files:
        return Subset(name, files)
    known = sorted(
        folder.name
        for folder in task.source.iterdir()
        if folder.is_dir() and folder.name not in NANO_CONFIGS
        if split_files(task.source, folder.name, split)
    )
    hint = nearest(name, known) if known else "It has no candidate subsets; Nano tasks have them."
    raise MissingError(f"candidates {name!r}: {task.name} has no such subset. {hint}")


def split_of(task: Task) -> str:
    """The split that a task of a Parquet folder is; of another layout, its name."""
    return task.split or task.name


def _read(file: Path) -> tuple[pa.LargeStringArray, pa.LargeStringArray, NDArray[np.int64]]:
    """Query id, document id and 1-based rank of every entry, in file order."""
    with arrow_errors(file):
        table = pq.read_table(file)
    for column in _COLUMNS:
        if column not in table.column_names:
            raise DataError(f"{file}: column {column!r} is missing; {_EXPECTED}")
    queries, lists = (table[column].combine_chunks() for column in _COLUMNS)
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        raise DataError(f"{file}: column 'corpus-ids' holds {lists.type}; {_EXPECTED}")
    _refuse_nulls(file, "corpus-ids", lists, np.arange(len(lists)))
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    rows = np.repeat(np.arange(len(lists)), lengths)
    names = _ids(file, "query-id", queries, np.arange(len(queries)))
    documents = _ids(file, "corpus-ids", lists.flatten(), rows)
    _refuse_repeats(file, names, rows, documents)
    ranks = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
    return names.take(pa.array(rows)), documents, ranks


def _ids(file: Path, column: str, values: pa.Array, rows: NDArray[np.int64]) -> pa.LargeStringArray:
    """Ids as strings; whole numbers are ids, too."""
    kind = values.type
    if not (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)
    ):
        raise DataError(f"{file}: the ids in column {column!r} are {kind}; {_EXPECTED}")
    _refuse_nulls(file, column, values, rows)
    return values.cast(pa.large_string())


def _refuse_nulls(file: Path, column: str, values: pa.Array, rows: NDArray[np.int64]) -> None:
    if values.null_count:
        [place, *_] = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
        raise DataError(f"{file}, row {rows[place] + 1}: {column!r} holds a null; {_EXPECTED}")


def _refuse_repeats(
    file: Path, queries: pa.LargeStringArray, rows: NDArray[np.int64], documents: pa.Array
) -> None:
    query_codes, codes = (
        column.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
        for column in (queries, documents)
    )
    place = _first_repeat(query_codes)
    if place is not None:
        raise DataError(
            f"{file}, row {place + 1}: the query {queries[place].as_py()!r} has a list already; "
            "expected one row for each query."
        )
    place = _first_repeat(rows * (len(documents) + 1) + codes)
    if place is not None:
        raise DataError(
            f"{file}, row {rows[place] + 1}: the document {documents[place].as_py()!r} is listed "
            "twice; expected each document once in a list."
        )


def _first_repeat(codes: NDArray[np.int64]) -> int | None:
    """The place of the first value that stood before."""
    again = np.ones(len(codes), dtype=bool)
    again[np.unique(codes, return_index=True)[1]] = False
    return int(again.argmax()) if again.any() else None
