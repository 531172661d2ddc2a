"""Runs as Parquet: the long form, with every query id in the metadata so that none is lost."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from r2med.atomic import atomic_file
from r2med.errors import DataError
from r2med.runs.run import Run

_QUERIES_KEY = b"r2med.queries"
_COLUMNS = ("query_id", "document_id", "score")


def write_parquet(run: Run, path: Path) -> None:
    """Write a run; queries without documents survive in the file's metadata."""
    table = run.to_table()
    queries = json.dumps(run.query_ids.to_pylist()).encode()
    with atomic_file(path) as draft:
        pq.write_table(table.replace_schema_metadata({_QUERIES_KEY: queries}), draft)


def read_parquet(path: Path, content: bytes | None = None) -> Run:
    """Read a run; rows are taken in file order, or by `rank` where that column exists.

    `content` are the file's bytes where they were read, and checked, before.
    """
    try:
        table = pq.read_table(path if content is None else pa.BufferReader(content))
    except (OSError, pa.ArrowInvalid) as problem:
        raise DataError(f"{path}: not a readable Parquet file ({problem}).") from problem
    missing = [name for name in _COLUMNS if name not in table.column_names]
    if missing:
        raise DataError(
            f"{path}: column {missing[0]!r} is missing; "
            "a run has the columns query_id, document_id, score and optionally rank."
        )
    if "rank" in table.column_names:
        table = table.sort_by([("rank", "ascending")])
    run = Run.from_columns(
        table["query_id"], table["document_id"], table["score"].to_numpy().astype(np.float64)
    )
    return _with_queries(run, (table.schema.metadata or {}).get(_QUERIES_KEY))


def _with_queries(run: Run, listed: bytes | None) -> Run:
    """Restore the order of queries, and those whose list is empty, from the metadata."""
    if listed is None:
        return run
    query_ids = pa.array(json.loads(listed), type=pa.large_string())
    places = pc.index_in(query_ids, value_set=run.query_ids).to_numpy(zero_copy_only=False)
    lengths = np.zeros(len(query_ids), dtype=np.int64)
    found = ~np.isnan(places.astype(np.float64))
    sources = places[found].astype(np.int64)
    lengths[found] = run.lengths[sources]
    entries = [np.arange(run.offsets[row], run.offsets[row + 1]) for row in sources]
    order = np.concatenate(entries) if entries else np.empty(0, dtype=np.int64)
    return Run(
        query_ids=query_ids,
        document_ids=run.document_ids,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        documents=run.documents[order],
        scores=run.scores[order],
    )
