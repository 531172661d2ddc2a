"""What a perfect reranker could reach: the same candidates, the best of them first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from r2med.measure.gains import Gains, gains
from r2med.measure.names import Metric
from r2med.measure.ordering import TieOrder, ordered
from r2med.measure.scores import Scores, scores_of
from r2med.runs import Run
from r2med.tasks.task import Judgements


def ceiling(
    run: Run,
    judgements: Judgements,
    metrics: Sequence[Metric],
    *,
    depth: int,
    ties: TieOrder = "trec",
) -> Scores:
    """Score a run whose first `depth` documents stand in the best order their judgements allow.

    The reranked run itself tells the candidates: reranking changes the order of its first
    documents, never which they are.
    """
    joined = gains(ordered(run, ties), judgements)
    found = joined.found.copy()
    found[:, :depth] = -np.sort(-found[:, :depth], axis=1)
    return scores_of(Gains(joined.query_ids, found, joined.ideal), metrics)
