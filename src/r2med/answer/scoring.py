"""Scores of answers by condition: one figure per query, means with intervals, the share achieved.

The score of a query follows one rule under all conditions: option accuracy if the question has
options, else the judge's grade if answers were graded, else token F1 if the reference is short.
Other queries are counted as not scored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from r2med.answer.citations import score_citations
from r2med.answer.conditions import CONDITIONS, Condition
from r2med.answer.correctness import POINTS, Correctness
from r2med.answer.store import StoredAnswer
from r2med.judge.store import Pair
from r2med.measure.intervals import SEED, TIE, Interval, pooled_interval

Scoring = Literal["auto", "option", "judge", "f1", "match"]
SCORINGS: tuple[Scoring, ...] = get_args(Scoring)
#: Resamples of queries for intervals of ratios and correlations.
RESAMPLES = 2_000
#: A score above this means that the answer is right.
RIGHT = 0.5
#: Share of resamples in which a ratio may be undefined.
_MOST_UNDEFINED = 0.025

Column = NDArray[np.float64]


@dataclass(frozen=True)
class Arm:
    """A condition, with a system if the passages come from one; a row of the report."""

    condition: Condition
    system: str = ""

    @property
    def label(self) -> str:
        """The name in tables."""
        return f"{self.condition}: {self.system}" if self.system else self.condition


@dataclass(frozen=True)
class Abstentions:
    """Counts of answers, by abstention and by whether a positive was among the passages."""

    right: int
    """Abstained, and no passage was a positive."""
    wrong: int
    """Abstained, although a positive was shown."""
    missed: int
    """Answered, although no passage was a positive."""
    answered: int
    """Answered with a positive among the passages."""

    @property
    def precision(self) -> float | None:
        """Right abstentions / abstentions."""
        total = self.right + self.wrong
        return self.right / total if total else None

    @property
    def recall(self) -> float | None:
        """Right abstentions / answers without a positive among the passages."""
        total = self.right + self.missed
        return self.right / total if total else None

    def __add__(self, more: Abstentions) -> Abstentions:
        return Abstentions(
            self.right + more.right,
            self.wrong + more.wrong,
            self.missed + more.missed,
            self.answered + more.answered,
        )


@dataclass(frozen=True, eq=False)
class ArmScores:
    """The answers of one arm on one task, by query."""

    arm: Arm
    answers: Mapping[str, tuple[StoredAnswer, ...]]
    """Answers by query, in the order of samples."""
    points: Mapping[str, tuple[float, ...]]
    """Scores by query and sample, for queries that can be scored."""
    judged: Mapping[str, tuple[Correctness | None, ...]]

    def mean(self, query_id: str) -> float:
        """The score of a query: the mean over its samples."""
        return float(np.mean(self.points[query_id]))


@dataclass(frozen=True)
class ArmFigures:
    """The figures of one arm over queries; None if a figure does not apply."""

    condition: Condition
    system: str
    queries: int
    answers: int
    score: float
    interval: Interval
    spread: float | None
    """Standard deviation of the mean score between samples; None for one sample."""
    option: float | None
    match: float
    f1: float
    shares: Mapping[Correctness, float]
    """Share of answers by judged correctness; empty without a judge."""
    abstained: float
    abstentions: Abstentions | None
    """Counts of abstentions; None for closed-book."""
    citation_precision: float | None
    citation_recall: float | None
    uncited: float | None
    """Share of answers that cite no passage, without abstentions; None for closed-book."""
    missing: int
    """Number of answers that are empty or refused, or whose prompt was too long."""
    share: float | None = None
    """(score - closed-book) / (oracle - closed-book); None unless oracle is significantly better
    than closed-book.
    """
    share_interval: Interval | None = None

    def to_json(self) -> dict[str, Any]:
        """All figures as JSON values."""
        return asdict(self)


def score_arms(
    answers: Sequence[StoredAnswer],
    judged: Mapping[Pair, Correctness],
    scoring: Scoring = "auto",
) -> dict[Arm, ArmScores]:
    """Group answers by arm and score every one by the rule of its query."""
    has_judge = bool(judged)
    grouped: dict[Arm, dict[str, list[StoredAnswer]]] = {}
    for answer in sorted(answers, key=lambda answer: answer.sample):
        arm = Arm(answer.condition, answer.system)
        grouped.setdefault(arm, {}).setdefault(answer.query_id, []).append(answer)
    scored = {}
    for arm in sorted(grouped, key=_arm_order):
        by_query: dict[str, tuple[StoredAnswer, ...]] = {}
        points: dict[str, tuple[float, ...]] = {}
        correctness: dict[str, tuple[Correctness | None, ...]] = {}
        for query_id, samples in grouped[arm].items():
            grades = tuple(find_correctness(item, judged) for item in samples)
            correctness[query_id] = grades
            values = [
                score_one(item, grade, scoring, has_judge=has_judge)
                for item, grade in zip(samples, grades, strict=True)
            ]
            by_query[query_id] = tuple(
                replace(item, abstained=grade == "abstained" or item.abstained)
                for item, grade in zip(samples, grades, strict=True)
            )
            known_values = [value for value in values if value is not None]
            if len(known_values) == len(values):
                points[query_id] = tuple(known_values)
        scored[arm] = ArmScores(arm, by_query, points, correctness)
    return scored


def find_correctness(
    answer: StoredAnswer, judged: Mapping[Pair, Correctness]
) -> Correctness | None:
    """Return the correctness of an answer; None if it needs a judge and has no grade."""
    if answer.abstained:
        return "abstained"
    if answer.option is not None:
        return "correct" if answer.option else "wrong"
    if answer.is_missing:
        return "wrong"
    return judged.get((answer.query_id, answer.item_id))


def score_one(
    answer: StoredAnswer, correctness: Correctness | None, scoring: Scoring, *, has_judge: bool
) -> float | None:
    """Return the score of one answer from 0 to 1; None if the rule does not apply."""
    rule = scoring
    if scoring == "auto":
        rule = "option" if answer.option is not None else "judge" if has_judge else "f1"
        if rule == "f1" and not answer.is_short:
            return None
    if rule == "option":
        return answer.option
    if rule == "judge":
        return None if correctness is None else POINTS[correctness]
    if answer.abstained:
        return 0.0
    return answer.match if rule == "match" else answer.f1


def common_queries(scored: Mapping[Arm, ArmScores]) -> list[str]:
    """Return the queries that every arm has a score for, in the order of the first arm."""
    arms = list(scored.values())
    if not arms:
        return []
    shared = set.intersection(*(set(arm.points) for arm in arms))
    return [query_id for query_id in arms[0].points if query_id in shared]


def measure_arms(tasks: Sequence[Mapping[Arm, ArmScores]]) -> list[ArmFigures]:
    """Return the figures of the arms that all tasks have; tasks have equal weights."""
    queries = [common_queries(scored) for scored in tasks]
    arms = [arm for arm in tasks[0] if all(arm in scored for scored in tasks)]
    figures = []
    for arm in arms:
        sides = [scored[arm] for scored in tasks]
        columns = [
            np.array([side.mean(query_id) for query_id in ids])
            for side, ids in zip(sides, queries, strict=True)
        ]
        share, share_interval = _share_of_way(tasks, queries, arm)
        chosen = [
            [
                (answer, grade)
                for query_id in ids
                for answer, grade in zip(side.answers[query_id], side.judged[query_id], strict=True)
            ]
            for side, ids in zip(sides, queries, strict=True)
        ]
        figures.append(_figures(arm, sides, queries, columns, chosen, share, share_interval))
    return figures


def _figures(
    arm: Arm,
    sides: Sequence[ArmScores],
    queries: Sequence[Sequence[str]],
    columns: Sequence[Column],
    chosen: Sequence[Sequence[tuple[StoredAnswer, Correctness | None]]],
    share: float | None,
    share_interval: Interval | None,
) -> ArmFigures:
    """Return the figures of one arm; `chosen` has its answers and their grades by task."""
    by_task = [[answer for answer, _ in task] for task in chosen]
    answers = [answer for task in by_task for answer in task]
    has_passages = arm.condition != "closed-book"

    def mean_over_tasks(measure: Callable[[StoredAnswer], float | None]) -> float | None:
        return _mean([_mean([measure(answer) for answer in task]) for task in by_task])

    return ArmFigures(
        condition=arm.condition,
        system=arm.system,
        queries=sum(len(ids) for ids in queries),
        answers=len(answers),
        score=float(np.mean([column.mean() for column in columns])),
        interval=pooled_interval(columns),
        spread=_spread(sides, queries),
        option=mean_over_tasks(lambda answer: answer.option),
        match=mean_over_tasks(lambda answer: answer.match) or 0.0,
        f1=mean_over_tasks(lambda answer: answer.f1) or 0.0,
        shares=_shares([[grade for _, grade in task] for task in chosen]),
        abstained=mean_over_tasks(lambda answer: float(answer.abstained)) or 0.0,
        abstentions=count_abstentions(answers) if has_passages else None,
        citation_precision=mean_over_tasks(_citation_precision) if has_passages else None,
        citation_recall=mean_over_tasks(_citation_recall) if has_passages else None,
        uncited=mean_over_tasks(_is_uncited) if has_passages else None,
        missing=sum(answer.is_missing for answer in answers),
        share=share,
        share_interval=share_interval,
    )


def _citation_precision(answer: StoredAnswer) -> float | None:
    return score_citations(answer.cited, answer.relevant).precision


def _citation_recall(answer: StoredAnswer) -> float | None:
    return None if answer.abstained else score_citations(answer.cited, answer.relevant).recall


def _is_uncited(answer: StoredAnswer) -> float | None:
    """Return 1.0 if an answer cites nothing; None for abstentions and missing answers."""
    return None if answer.abstained or answer.is_missing else float(not answer.cited)


def count_abstentions(answers: Sequence[StoredAnswer]) -> Abstentions:
    """Count right, wrong and missed abstentions; right means that no positive was shown."""
    total = Abstentions(0, 0, 0, 0)
    for answer in answers:
        is_right = not answer.relevant
        total += Abstentions(
            right=int(answer.abstained and is_right),
            wrong=int(answer.abstained and not is_right),
            missed=int(not answer.abstained and is_right),
            answered=int(not answer.abstained and not is_right),
        )
    return total


def resample_queries(size: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return resampled query indices, one row per resample."""
    return generator.integers(0, size, size=(RESAMPLES, size))


def percentile_interval(values: Column) -> Interval | None:
    """Return the 95 % percentile interval; None if too many resamples are undefined."""
    defined = values[np.isfinite(values)]
    if len(defined) < (1 - _MOST_UNDEFINED) * len(values):
        return None
    low, high = np.percentile(defined, [2.5, 97.5])
    return Interval(float(low), float(high))


def _share_of_way(
    tasks: Sequence[Mapping[Arm, ArmScores]], queries: Sequence[Sequence[str]], arm: Arm
) -> tuple[float | None, Interval | None]:
    """Return (score - floor) / (ceiling - floor) with its interval over resampled queries.

    None unless the ceiling (oracle) is significantly above the floor (closed-book), because the
    ratio would be noise.
    """
    floor, ceiling = Arm("closed-book"), Arm("oracle")
    if arm.condition != "retrieved" or not all(floor in t and ceiling in t for t in tasks):
        return None, None
    generator = np.random.default_rng(SEED)
    means = np.zeros(3)
    drawn = np.zeros((3, RESAMPLES))
    for scored, ids in zip(tasks, queries, strict=True):
        rows = np.array(
            [[scored[side].mean(query_id) for query_id in ids] for side in (floor, arm, ceiling)]
        )
        means += rows.mean(axis=1) / len(tasks)
        samples = resample_queries(len(ids), generator)
        drawn += rows[:, samples].mean(axis=2) / len(tasks)
    way, ways = means[2] - means[0], drawn[2] - drawn[0]
    if np.percentile(ways, 2.5) <= TIE:
        return None, None
    safe_ways = np.where(ways > TIE, ways, np.nan)
    return float((means[1] - means[0]) / way), percentile_interval(
        (drawn[1] - drawn[0]) / safe_ways
    )


def _spread(sides: Sequence[ArmScores], queries: Sequence[Sequence[str]]) -> float | None:
    """Return the standard deviation of the mean score between samples; None for one sample."""
    samples = min(
        (
            len(side.points[query_id])
            for side, ids in zip(sides, queries, strict=True)
            for query_id in ids
        ),
        default=1,
    )
    if samples < 2:
        return None
    means = [
        np.mean(
            [
                np.mean([side.points[query_id][sample] for query_id in ids])
                for side, ids in zip(sides, queries, strict=True)
            ]
        )
        for sample in range(samples)
    ]
    return float(np.std(means, ddof=1))


def _shares(tasks: Sequence[Sequence[Correctness | None]]) -> dict[Correctness, float]:
    """Return the mean share of each grade over tasks; empty if an answer has no grade."""
    if not all(tasks) or any(grade is None for grades in tasks for grade in grades):
        return {}
    return {
        grade: float(np.mean([grades.count(grade) / len(grades) for grades in tasks]))
        for grade in POINTS
    }


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None


def _arm_order(arm: Arm) -> tuple[int, str]:
    return CONDITIONS.index(arm.condition), arm.system
