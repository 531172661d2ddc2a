"""Fit a ranking made elsewhere to a task: its queries, in its order, with its documents only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.errors import DataError
from r2med.retrieve.given.findings import Findings
from r2med.runs import Run
from r2med.tasks.task import Task


def fitted(run: Run, task: Task, findings: Findings, source: str) -> tuple[Run, Findings]:
    """The part of a ranking that a task knows; the findings say what was lost.

    Nothing in common fails. Ids are often small numbers that many tasks use, so both a query and
    its documents must be met; `source` names the ranking in the error.
    """
    queries = _places(run.query_ids, task.queries.ids)
    documents = _places(run.document_ids, task.corpus.document_ids)
    strange = documents[run.documents] < 0
    lost = strange & (queries[run.query_rows] >= 0)
    known = run.take(np.flatnonzero(~strange)).over(task.queries.ids, queries)
    fit = replace(
        known,
        document_ids=task.corpus.document_ids,
        documents=documents[known.documents].astype(np.int32),
    )
    if not len(fit.documents):
        raise DataError(
            f"{source}: none of its {len(run.documents):,} entries is for a query and a document "
            f"of {task.name}, so there is nothing to measure. Was the run made on another task?"
        )
    return fit, replace(
        findings,
        unknown_queries=int((queries < 0).sum()),
        unknown_query=_first(run.query_ids, queries < 0),
        unknown_documents=int(lost.sum()),
        unknown_document=_first(run.document_ids.take(pa.array(run.documents)), lost),
        missing_queries=int((fit.lengths == 0).sum()),
    )


def _places(wanted: pa.Array, known: pa.Array) -> NDArray[np.int64]:
    places = pc.index_in(wanted, value_set=known).fill_null(-1)
    found: NDArray[np.int64] = places.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _first(names: pa.Array, chosen: NDArray[np.bool_]) -> str:
    places = np.flatnonzero(chosen)
    return str(names[int(places[0])].as_py()) if len(places) else ""
