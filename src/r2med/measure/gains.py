"""Join a run with judgements: the gain at every rank, as one matrix all metrics read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.runs import Run
from r2med.tasks.task import Judgements

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Gains:
    """A row a judged query: what stood at each rank, and what would have stood there at best."""

    query_ids: pa.LargeStringArray
    found: Matrix
    """Judged score of the document at each rank; 0 when unjudged or past the end."""
    ideal: Matrix
    """The query's positive scores, best first."""

    @property
    def positives(self) -> NDArray[np.int64]:
        """How many documents answer each query."""
        counts: NDArray[np.int64] = np.count_nonzero(self.ideal, axis=1)
        return counts


def gains(run: Run, judgements: Judgements) -> Gains:
    """Look every ranked document up; a judged query that the run lacks has a row of zeros."""
    judged = judgements.query_ids.dictionary_encode()
    judged_rows = judged.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    query_ids = judged.dictionary
    return Gains(
        query_ids=query_ids,
        found=_found(run, judgements, judged_rows, query_ids),
        ideal=_ideal(judgements.scores, judged_rows, len(query_ids)),
    )


def _found(
    run: Run, judgements: Judgements, judged_rows: NDArray[np.int64], query_ids: pa.Array
) -> Matrix:
    depth = int(run.lengths.max(initial=0))
    matrix = np.zeros((len(query_ids), depth))
    rows = _places(run.query_ids, query_ids)[run.query_rows]
    kept = rows >= 0
    width = len(run.document_ids)
    entry_keys = rows[kept] * width + run.documents[kept]
    codes = _places(judgements.document_ids, run.document_ids)
    ranked = codes >= 0
    scores = _look_up(
        entry_keys, judged_rows[ranked] * width + codes[ranked], judgements.scores[ranked]
    )
    matrix[rows[kept], run.ranks[kept] - 1] = scores
    return matrix


def _look_up(
    wanted: NDArray[np.int64], keys: NDArray[np.int64], values: NDArray[np.int32]
) -> NDArray[np.float64]:
    if not keys.size:
        return np.zeros(len(wanted))
    order = np.argsort(keys)
    places = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
    hits = order[places]
    return np.where(keys[hits] == wanted, values[hits], 0).astype(np.float64)


def _ideal(scores: NDArray[np.int32], judged_rows: NDArray[np.int64], queries: int) -> Matrix:
    positive = scores > 0
    rows, values = judged_rows[positive], scores[positive]
    order = np.lexsort((-values, rows))
    counts = np.bincount(rows, minlength=queries)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    matrix = np.zeros((queries, int(counts.max(initial=0))))
    matrix[rows[order], np.arange(len(rows)) - starts] = values[order]
    return matrix


def _places(wanted: pa.Array, known: pa.Array) -> NDArray[np.int64]:
    """Position of each wanted id among the known ones, -1 where it is not there."""
    found = pc.index_in(wanted, value_set=known).fill_null(-1)
    places: NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return places
