"""Tie orders: how a list is sorted before it is measured; the protocols differ in it."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.errors import UsageError, nearest
from r2med.runs.run import Run

TieOrder = Literal["trec", "id-ascending", "list"]
"""`trec`: score as float32 descending, then document id descending, as trec_eval does.
`id-ascending`: score descending, then id ascending (dense runs of the Nano protocol).
`list`: as the run has it, scores unread (candidate lists of the Nano protocol)."""


def ordered(run: Run, ties: TieOrder = "trec") -> Run:
    """The run with every list in the given order."""
    if ties not in get_args(TieOrder):
        raise UsageError(f"tie order {ties!r} is not known. {nearest(ties, get_args(TieOrder))}")
    scores = trec_scores(run.scores) if ties == "trec" else run.scores
    if ties == "list" or _falls(run, scores):
        return run
    names = name_places(run)
    if ties == "trec":
        return run.take(np.lexsort((-names, -scores, run.query_rows)))
    return run.take(np.lexsort((names, -scores, run.query_rows)))


def _falls(run: Run, scores: NDArray[Any]) -> bool:
    """Whether every list is in order and without ties already; sorting would take most time."""
    falling = np.append(scores[1:] < scores[:-1], True)
    falling[run.offsets[1:][run.lengths > 0] - 1] = True
    return bool(falling.all())


def trec_scores(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Scores as trec_eval holds them: what float32 cannot tell apart is tied."""
    with np.errstate(over="ignore"):
        return scores.astype(np.float32)


def name_places(run: Run) -> NDArray[np.int64]:
    """For every entry, the place of its document id among the run's ids in byte order."""
    used, inverse = np.unique(run.documents, return_inverse=True)
    names = run.document_ids.take(pa.array(used)).cast(pa.large_binary())
    places = np.empty(len(used), dtype=np.int64)
    places[pc.sort_indices(names).to_numpy()] = np.arange(len(used))
    entries: NDArray[np.int64] = places[inverse]
    return entries
