"""Fit a ranking made elsewhere to a task: its queries, in its order, with its documents only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.retrieve.given.findings import Findings
from r2med.runs import Run
from r2med.tasks.task import Task


def fitted(run: Run, task: Task, findings: Findings) -> tuple[Run, Findings]:
    """The part of a ranking that a task knows; the findings say what was lost."""
    queries = _places(run.query_ids, task.queries.ids)
    documents = _places(run.document_ids, task.corpus.document_ids)
    rows = queries[run.query_rows]
    found = documents[run.documents]
    strange = (rows >= 0) & (found < 0)
    kept = (rows >= 0) & (found >= 0)
    order = np.argsort(rows[kept], kind="stable")
    lengths = np.bincount(rows[kept], minlength=len(task.queries))
    told = replace(
        findings,
        unknown_queries=int((queries < 0).sum()),
        unknown_query=_first(run.query_ids, queries < 0),
        unknown_documents=int(strange.sum()),
        unknown_document=_first(run.document_ids.take(pa.array(run.documents)), strange),
        missing_queries=int((lengths == 0).sum()),
    )
    fit = Run(
        query_ids=task.queries.ids,
        document_ids=task.corpus.document_ids,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        documents=found[kept][order].astype(np.int32),
        scores=run.scores[kept][order],
    )
    return fit, told


def _places(wanted: pa.Array, known: pa.Array) -> NDArray[np.int64]:
    places = pc.index_in(wanted, value_set=known).fill_null(-1)
    found: NDArray[np.int64] = places.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _first(names: pa.Array, chosen: NDArray[np.bool_]) -> str:
    places = np.flatnonzero(chosen)
    return str(names[int(places[0])].as_py()) if len(places) else ""
