"""The candidate subsets of a Nano task: lists of document ids, best first, without scores.

The hybrid subset was published with a safeguard: where its 100 candidates hold no positive, one
positive stands at rank 101. It leaks the answer into the candidates, so it is left out unless
asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from r2med.errors import DataError, MissingError, UsageError, nearest
from r2med.runs import Run
from r2med.tasks.location import NANO_CONFIGS, split_files
from r2med.tasks.reading.source import find_source
from r2med.tasks.task import Task

#: Candidates of a published hybrid list; what stands below was put there as a safeguard.
SAFEGUARD_RANK = 101
_HYBRID = "reranking_hybrid"


@dataclass(frozen=True)
class CandidateSettings:
    """What `candidates:NAME` may say."""

    name: str
    safeguard: bool

    def __post_init__(self) -> None:
        """Refuse no name."""
        if not self.name:
            raise UsageError("candidates: what to read is missing, as in candidates:bm25.")


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
        table = pa.concat_tables([_table(file) for file in self.files])
        lists = table["corpus-ids"].combine_chunks()
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
        rows = np.repeat(np.arange(len(lists)), lengths)
        ranks = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
        queries = table["query-id"].combine_chunks().take(pa.array(rows))
        run = Run.from_columns(queries, lists.flatten(), -ranks.astype(np.float64))
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
    """The split that a task of a Parquet folder is: its name, or the only one there is."""
    known = task.entry.split if task.entry else None
    if known or split_files(task.source, NANO_CONFIGS[0], task.name):
        return known or task.name
    if not (task.source / NANO_CONFIGS[0]).is_dir():
        return task.name
    return find_source(task.source).split or task.name


def _table(file: Path) -> pa.Table:
    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowInvalid) as problem:
        raise DataError(f"{file}: not a readable Parquet file ({problem}).") from problem
    for column in ("query-id", "corpus-ids"):
        if column not in table.column_names:
            raise DataError(
                f"{file}: column {column!r} is missing; candidates have the columns query-id and "
                "corpus-ids (a list of document ids, best first)."
            )
    names = pa.large_list(pa.large_string())
    return pa.table(
        {
            "query-id": table["query-id"].cast(pa.large_string()),
            "corpus-ids": table["corpus-ids"].cast(names),
        }
    )
