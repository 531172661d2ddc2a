"""How retrieval relates to answers, query by query.

A point is one query of one system: its retrieval measures and the score of its answer with the
retrieved passages. Correlations are Spearman's, with bootstrap intervals over queries; all systems
of a resampled query stay together, since their points are not independent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.answer.scoring import (
    RESAMPLES,
    RIGHT,
    Arm,
    ArmScores,
    common_queries,
    percentile_interval,
)
from r2med.measure.intervals import SEED, Interval

Column = NDArray[np.float64]


@dataclass(frozen=True)
class RelationPoint:
    """The retrieval measures and the answer score of one query of one system."""

    task: str
    system: str
    query_id: str
    measures: Mapping[str, float]
    score: float
    positives_shown: int
    """Number of positives among the passages."""
    positives: int
    """Number of judged positives of the query."""


@dataclass(frozen=True)
class Correlation:
    """Spearman's rho of a retrieval measure with the answer score."""

    measure: str
    rho: float | None
    """None if the measure or the score does not vary."""
    interval: Interval | None


@dataclass(frozen=True)
class RightAndWrong:
    """One system's right answers without a positive, and wrong answers with all positives."""

    system: str
    points: int
    without_positive: int
    right_without_positive: int
    with_all: int
    wrong_with_all: int
    rho: Correlation
    """Correlation of the best measure with the answers of this system alone."""


@dataclass(frozen=True)
class Relation:
    """The relation of retrieval to answers over all points."""

    points: tuple[RelationPoint, ...]
    correlations: tuple[Correlation, ...]
    """One correlation per measure, the best predictor first."""
    lead: Interval | None
    """Interval of the difference between the best and the second rho."""
    systems: tuple[RightAndWrong, ...]

    @property
    def best(self) -> Correlation | None:
        """The correlation of the measure that predicts answers best; None if nothing varies."""
        first = self.correlations[0] if self.correlations else None
        return first if first is not None and first.rho is not None else None

    @property
    def is_best_clear(self) -> bool:
        """Whether the best measure predicts significantly better than the second."""
        return self.lead is not None and self.lead.low > 0

    def to_json(self) -> dict[str, Any]:
        """All figures as JSON values."""
        return {
            "points": len(self.points),
            "correlations": [_correlation_json(item) for item in self.correlations],
            "lead": _interval_json(self.lead),
            "systems": [
                {
                    **{key: value for key, value in vars(row).items() if key != "rho"},
                    "correlation": _correlation_json(row.rho),
                }
                for row in self.systems
            ],
        }


def relate(tasks: Mapping[str, Mapping[Arm, ArmScores]]) -> Relation | None:
    """Relate retrieval measures to answer scores; None without answers from retrieved passages."""
    points = collect_points(tasks)
    if not points:
        return None
    measures = [
        name for name in points[0].measures if all(name in point.measures for point in points)
    ]
    draws = _draw_points(points)
    rhos = {name: _resample(points, name, draws) for name in measures}
    correlations = [
        Correlation(name, rho, percentile_interval(samples) if rho is not None else None)
        for name, (rho, samples) in rhos.items()
    ]
    correlations.sort(key=lambda item: -(item.rho if item.rho is not None else -2.0))
    lead = None
    if len(correlations) > 1 and correlations[1].rho is not None:
        first, second = (rhos[item.measure][1] for item in correlations[:2])
        lead = percentile_interval(first - second)
    best = correlations[0].measure if correlations else ""
    return Relation(tuple(points), tuple(correlations), lead, tuple(_count_systems(points, best)))


def collect_points(tasks: Mapping[str, Mapping[Arm, ArmScores]]) -> list[RelationPoint]:
    """Return one point per task, system and query with an answer score."""
    points = []
    for task, scored in tasks.items():
        for query_id in common_queries(scored):
            for arm, side in scored.items():
                if arm.condition != "retrieved":
                    continue
                answer = side.answers[query_id][0]
                points.append(
                    RelationPoint(
                        task=task,
                        system=arm.system,
                        query_id=query_id,
                        measures=answer.retrieval,
                        score=side.mean(query_id),
                        positives_shown=len(answer.relevant),
                        positives=answer.positives,
                    )
                )
    return points


def spearman(first: Column, second: Column) -> Column:
    """Return Spearman's rho between matching rows; NaN if a row does not vary."""
    from scipy.stats import rankdata  # takes longer to import than most commands

    ranks = [rankdata(values, axis=-1) for values in (first, second)]
    centred = [values - values.mean(axis=-1, keepdims=True) for values in ranks]
    norms = np.sqrt((centred[0] ** 2).sum(axis=-1) * (centred[1] ** 2).sum(axis=-1))
    products = (centred[0] * centred[1]).sum(axis=-1)
    rho: Column = np.divide(products, norms, out=np.full_like(products, np.nan), where=norms > 1e-9)
    return rho


def _draw_points(points: Sequence[RelationPoint]) -> NDArray[np.int64]:
    """Return point indices, one row per resample: queries with all systems, drawn within tasks.

    All systems answered the same queries, so every resample has as many points as there are.
    """
    generator = np.random.default_rng(SEED)
    blocks = []
    for task in dict.fromkeys(point.task for point in points):
        rows: dict[str, list[int]] = {}
        for index, point in enumerate(points):
            if point.task == task:
                rows.setdefault(point.query_id, []).append(index)
        clusters = np.array(list(rows.values()))
        chosen = generator.integers(0, len(clusters), size=(RESAMPLES, len(clusters)))
        blocks.append(clusters[chosen].reshape(RESAMPLES, -1))
    return np.concatenate(blocks, axis=1)


def _resample(
    points: Sequence[RelationPoint], measure: str, draws: NDArray[np.int64]
) -> tuple[float | None, Column]:
    values = np.array([point.measures[measure] for point in points])
    scores = np.array([point.score for point in points])
    rho = float(spearman(values, scores))
    return (None if np.isnan(rho) else rho), spearman(values[draws], scores[draws])


def _count_systems(points: Sequence[RelationPoint], measure: str) -> list[RightAndWrong]:
    rows = []
    for system in dict.fromkeys(point.system for point in points):
        of_system = [point for point in points if point.system == system]
        without = [point for point in of_system if not point.positives_shown]
        complete = [point for point in of_system if point.positives_shown == point.positives]
        rho, samples = _resample(of_system, measure, _draw_points(of_system))
        interval = percentile_interval(samples) if rho is not None else None
        rows.append(
            RightAndWrong(
                system=system,
                points=len(of_system),
                without_positive=len(without),
                right_without_positive=sum(point.score > RIGHT for point in without),
                with_all=len(complete),
                wrong_with_all=sum(point.score <= RIGHT for point in complete),
                rho=Correlation(measure, rho, interval),
            )
        )
    return rows


def _correlation_json(item: Correlation) -> dict[str, Any]:
    return {"measure": item.measure, "rho": item.rho, "interval": _interval_json(item.interval)}


def _interval_json(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]
