"""Metrics exactly as trec_eval computes them: their names, and their values for every query.

`ndcg@10`, `recall@100`, `mrr` are the same on the command line and in results. A run is joined with
its judgements once, into a matrix of gains by rank that all metrics read. Written by hand because
the oracle, pytrec_eval, takes dictionaries of Python objects and is hundreds of times slower; the
tests hold the two together.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.errors import UsageError, nearest
from r2med.runs import Run
from r2med.tasks.task import Judgements

#: What each metric answers, for help texts and documentation.
DESCRIPTIONS: dict[str, str] = {
    "ndcg": "normalised discounted cumulative gain, graded",
    "map": "mean average precision, over all positives of the query",
    "recall": "share of the query's positives found",
    "precision": "share of the first k that are positive",
    "hit": "1 when a positive is among the first k",
    "mrr": "1 / rank of the first positive",
}
HEADLINE = ("ndcg@10", "map@10", "recall@100", "precision@10", "hit@10", "mrr")
#: The union of the cutoffs that the published tables use.
CUTOFFS = (1, 3, 5, 10, 25, 50, 100)

_FORM = re.compile(r"([a-z]+)(?:@([1-9][0-9]*))?")
_ALIASES = {"p": "precision", "r": "recall", "rr": "mrr", "success": "hit"}


@dataclass(frozen=True, order=True)
class Metric:
    """A metric at a cutoff; `mrr` may go without one and then reads the whole run."""

    kind: str
    cutoff: int | None

    def __str__(self) -> str:
        return self.kind if self.cutoff is None else f"{self.kind}@{self.cutoff}"


def parse_metric(text: str) -> Metric:
    """Read a metric's name; the error offers the nearest known ones."""
    found = _FORM.fullmatch(text.strip().lower())
    kind = _ALIASES.get(found[1], found[1]) if found else text
    if not found or kind not in DESCRIPTIONS:
        examples = [name if name == "mrr" else f"{name}@10" for name in DESCRIPTIONS]
        raise UsageError(f"metric {text!r} is not known. {nearest(text, examples)}")
    if found[2] is None and kind != "mrr":
        raise UsageError(f"metric {text!r} needs a cutoff, as in {kind}@10.")
    return Metric(kind, int(found[2]) if found[2] else None)


def stored_metrics() -> list[Metric]:
    """Every metric that a result keeps for each query."""
    kinds = [kind for kind in DESCRIPTIONS if kind != "mrr"]
    return [Metric(kind, cutoff) for kind in kinds for cutoff in CUTOFFS] + [Metric("mrr", None)]


Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Gains:
    """One row per judged query: the gain at each rank, and what it would have been at best."""

    query_ids: pa.LargeStringArray
    found: Matrix
    """Judged score of the document at each rank; 0 when unjudged, below 0 or past the end."""
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
    rows = places_of(run.query_ids, query_ids)[run.query_rows]
    kept = rows >= 0
    width = len(run.document_ids)
    entry_keys = rows[kept] * width + run.documents[kept]
    codes = places_of(judgements.document_ids, run.document_ids)
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
    return np.where(keys[hits] == wanted, np.maximum(values[hits], 0), 0).astype(np.float64)


def _ideal(scores: NDArray[np.int32], judged_rows: NDArray[np.int64], queries: int) -> Matrix:
    positive = scores > 0
    rows, values = judged_rows[positive], scores[positive]
    order = np.lexsort((-values, rows))
    counts = np.bincount(rows, minlength=queries)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    matrix = np.zeros((queries, int(counts.max(initial=0))))
    matrix[rows[order], np.arange(len(rows)) - starts] = values[order]
    return matrix


def places_of(wanted: pa.Array, known: pa.Array) -> NDArray[np.int64]:
    """Position of each wanted id among the known ones, -1 where it is not there."""
    found = pc.index_in(wanted, value_set=known).fill_null(-1)
    places: NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return places


Column = NDArray[np.float64]


def score_column(gains: Gains, metric: Metric) -> Column:
    """One value per query."""
    depth = max(gains.found.shape[1], 1)
    return _KINDS[metric.kind](gains, metric.cutoff or depth)


def _ndcg(gains: Gains, cutoff: int) -> Column:
    return _ratio(_discounted(gains.found, cutoff), _discounted(gains.ideal, cutoff))


def _map(gains: Gains, cutoff: int) -> Column:
    relevant = gains.found[:, :cutoff] > 0
    precisions = np.cumsum(relevant, axis=1) / np.arange(1, relevant.shape[1] + 1)
    return _ratio((precisions * relevant).sum(axis=1), gains.positives)


def _recall(gains: Gains, cutoff: int) -> Column:
    return _ratio(_count(gains, cutoff), gains.positives)


def _precision(gains: Gains, cutoff: int) -> Column:
    return _count(gains, cutoff) / cutoff


def _hit(gains: Gains, cutoff: int) -> Column:
    return np.minimum(_count(gains, cutoff), 1.0)


def _mrr(gains: Gains, cutoff: int) -> Column:
    relevant = gains.found[:, :cutoff] > 0
    if not relevant.shape[1]:
        return np.zeros(len(relevant))
    return np.where(relevant.any(axis=1), 1.0 / (1 + relevant.argmax(axis=1)), 0.0)


def _count(gains: Gains, cutoff: int) -> Column:
    counts: Column = np.count_nonzero(gains.found[:, :cutoff] > 0, axis=1).astype(np.float64)
    return counts


def _discounted(matrix: Matrix, cutoff: int) -> Column:
    cut = matrix[:, :cutoff]
    summed: Column = cut @ (1.0 / np.log2(np.arange(2, cut.shape[1] + 2)))
    return summed


def _ratio(part: Column, whole: NDArray[np.generic]) -> Column:
    ratios: Column = np.divide(part, whole, out=np.zeros(len(part)), where=np.asarray(whole) > 0)
    return ratios


_KINDS: dict[str, Callable[[Gains, int], Column]] = {
    "ndcg": _ndcg,
    "map": _map,
    "recall": _recall,
    "precision": _precision,
    "hit": _hit,
    "mrr": _mrr,
}
