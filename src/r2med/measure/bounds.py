"""Bounds of a score: what the order of ties can make of it, and what a perfect reranker could."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from r2med.measure.metrics import HEADLINE, Gains, Metric, gains
from r2med.measure.scores import Scores, chosen_metrics, scores_of
from r2med.runs import Run
from r2med.runs.run import TieOrder, ordered, places_of
from r2med.tasks.task import Judgements


@dataclass(frozen=True, eq=False)
class TieBounds:
    """Scores with every tie resolved against the system, and in its favour."""

    worst: Scores
    best: Scores


def tie_bounds(
    run: Run,
    judgements: Judgements,
    metrics: Sequence[str | Metric] = HEADLINE,
    *,
    ties: TieOrder = "trec",
) -> TieBounds:
    """Measure a run under the worst and the best order of equal scores.

    What counts as equal follows `ties`: float32 for trec, float64 for id-ascending, nothing for a
    list. Documents that tie with the last one but were cut off are not in the run, so the bounds
    say nothing about them.
    """
    wanted = chosen_metrics(metrics)
    listed = ordered(run, ties)
    joined = gains(listed, judgements)
    if ties == "list" or not joined.levels.size:
        scores = scores_of(joined, wanted)
        return TieBounds(worst=scores, best=scores)
    groups = _tie_groups(listed, joined, np.float32 if ties == "trec" else np.float64)
    rows = np.repeat(np.arange(len(groups)), groups.shape[1])
    bounds = []
    for sign in (1.0, -1.0):
        order = np.lexsort((sign * joined.levels.ravel(), groups.ravel(), rows))
        levels = joined.levels.ravel()[order].reshape(joined.levels.shape)
        bounds.append(scores_of(replace(joined, levels=levels), wanted))
    return TieBounds(worst=bounds[0], best=bounds[1])


def _tie_groups(
    run: Run,
    joined: Gains,
    precision: type[np.float32] | type[np.float64],
) -> NDArray[np.int64]:
    """For every rank of every judged query a number that equal scores share, ascending by rank."""
    rows = places_of(run.query_ids, joined.query_ids)[run.query_rows]
    kept = rows >= 0
    scores = np.full(joined.levels.shape, -np.inf, dtype=precision)
    scores[rows[kept], run.ranks[kept] - 1] = run.scores[kept]
    steps = np.zeros(scores.shape, dtype=np.int64)
    steps[:, 1:] = scores[:, 1:] != scores[:, :-1]
    groups: NDArray[np.int64] = np.cumsum(steps, axis=1)
    return groups


def ceiling(
    run: Run,
    judgements: Judgements,
    metrics: Sequence[Metric],
    *,
    depth: int,
    ties: TieOrder = "trec",
) -> Scores:
    """Score a run whose first `depth` documents stand in the best order their judgements allow.

    The candidates are those of the reranked run itself: reranking changes the order of its first
    documents, never which they are.
    """
    joined = gains(ordered(run, ties), judgements)
    levels = joined.levels.copy()
    levels[:, :depth] = -np.sort(-levels[:, :depth], axis=1)
    return scores_of(replace(joined, levels=levels), metrics)
