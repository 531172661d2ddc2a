"""The report of answer sets: conditions, paired tests, relation to retrieval, judge and cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from r2med.answer.grading import (
    JudgeCalibration,
    calibrate_judge,
    find_grades,
    judged_correctness,
)
from r2med.answer.relation import Relation, relate
from r2med.answer.scoring import (
    Arm,
    ArmFigures,
    ArmScores,
    Scoring,
    common_queries,
    measure_arms,
    score_arms,
)
from r2med.answer.store import AnswerSet, StoredAnswer
from r2med.errors import DataError, plural
from r2med.judge.families import families_of
from r2med.judge.store import JudgementSet
from r2med.measure.significance import Difference, compare_systems
from r2med.tables import Tabular, make_table

#: Columns of the table: texts, counts, and figures from 0 to 1.
_TEXTS = ("set", "llm", "task", "condition", "system")
_COUNTS = ("queries", "answers", "right_abstentions", "wrong_abstentions", "missing")
_SCORES = ("score", "low", "high", "spread", "share", "share_low", "share_high")
_PARTS = ("option", "match", "f1", "correct", "partly", "wrong", "abstained")
_CITATIONS = ("citation_precision", "citation_recall", "uncited")
_COLUMNS: dict[str, type] = {
    **dict.fromkeys(_TEXTS, str),
    **dict.fromkeys(_SCORES, float),
    **dict.fromkeys(_PARTS, float),
    **dict.fromkeys(_CITATIONS, float),
    **dict.fromkeys(_COUNTS, int),
}


@dataclass(frozen=True)
class AnswerCost:
    """Tokens, money and time of the answers when they were generated."""

    answers: int
    tokens: int
    money: float | None
    seconds: float


@dataclass(frozen=True)
class ArmComparison:
    """A paired test of two arms over queries; `p_holm` is corrected for all reported tests."""

    first: str
    second: str
    difference: Difference
    p_holm: float

    def to_json(self) -> dict[str, Any]:
        """All figures as JSON values."""
        return {
            "first": self.first,
            "second": self.second,
            "p_holm": self.p_holm,
            **asdict(self.difference),
        }


@dataclass(frozen=True)
class TaskFigures:
    """The figures of one task."""

    task: str
    rows: tuple[ArmFigures, ...]
    queries: int
    unscored: int
    """Number of queries without a score for at least one arm."""


@dataclass(frozen=True, eq=False)
class AnswerReport(Tabular):
    """The answers of one model on one or several tasks."""

    name: str
    llm: str
    k: int
    scoring: Scoring
    judge: str | None
    tasks: tuple[TaskFigures, ...]
    pooled: tuple[ArmFigures, ...]
    """Figures over all tasks, with equal weights; empty if there is only one task."""
    comparisons: tuple[ArmComparison, ...]
    relation: Relation | None
    calibrations: tuple[JudgeCalibration, ...]
    cost: AnswerCost
    warnings: tuple[str, ...]

    is_drawn = True

    @property
    def rows(self) -> tuple[ArmFigures, ...]:
        """The figures over all tasks, or those of the only task."""
        return self.pooled or self.tasks[0].rows

    def to_arrow(self) -> pa.Table:
        """One row per task, condition and system."""
        blocks = [(figures.task, figures.rows) for figures in self.tasks]
        if self.pooled:
            blocks.append(("mean of tasks", self.pooled))
        rows = [_flat_row(self, task, row) for task, rows in blocks for row in rows]
        return make_table(_COLUMNS, rows)

    def to_json(self) -> dict[str, Any]:
        """All figures as JSON values."""
        return {
            "set": self.name,
            "llm": self.llm,
            "k": self.k,
            "scoring": self.scoring,
            "judge": self.judge,
            "tasks": [
                {
                    "task": figures.task,
                    "queries": figures.queries,
                    "unscored": figures.unscored,
                    "conditions": [row.to_json() for row in figures.rows],
                }
                for figures in self.tasks
            ],
            "mean_of_tasks": [row.to_json() for row in self.pooled],
            "comparisons": [comparison.to_json() for comparison in self.comparisons],
            "relation": None if self.relation is None else self.relation.to_json(),
            "calibrations": [calibration.to_json() for calibration in self.calibrations],
            "cost": asdict(self.cost),
            "warnings": list(self.warnings),
        }


def report_answers(
    sets: Sequence[AnswerSet],
    *,
    judge: str | None = None,
    scoring: Scoring = "auto",
    systems: Sequence[str] = (),
) -> AnswerReport:
    """Report answer sets of one name on one or several tasks.

    Args:
        sets: One set per task.
        judge: The judge whose grades count; by default the newest.
        scoring: The rule that scores a query; see `r2med.answer.scoring`.
        systems: Systems to report; all by default.

    Raises:
        DataError: No query can be scored.
    """
    scored: dict[str, dict[Arm, ArmScores]] = {}
    calibrations: list[JudgeCalibration] = []
    judges: dict[str, None] = {}
    shared_families: set[str] = set()
    answers: list[StoredAnswer] = []
    for answer_set in sets:
        task = answer_set.description.task
        grades = find_grades(answer_set, judge)
        chosen = _choose_systems(answer_set, systems)
        answers += chosen
        scored[task] = score_arms(chosen, judged_correctness(grades), scoring)
        if not common_queries(scored[task]):
            raise DataError(_explain_unscored(answer_set, scored[task], scoring))
        calibration = calibrate_judge(answer_set, grades)
        if calibration is not None:
            calibrations.append(calibration)
        if grades is not None:
            judges[grades.name] = None
            shared_families |= _shared_families(answer_set, grades)
    tasks = tuple(_task_figures(task, arms) for task, arms in scored.items())
    return AnswerReport(
        name=sets[0].name,
        llm=sets[0].description.llm,
        k=sets[0].description.k,
        scoring=scoring,
        judge=", ".join(judges) or None,
        tasks=tasks,
        pooled=tuple(measure_arms(list(scored.values()))) if len(scored) > 1 else (),
        comparisons=tuple(compare_arms(scored)),
        relation=relate(scored),
        calibrations=tuple(calibrations),
        cost=_cost(answers),
        warnings=tuple(_warnings(tasks, judges, calibrations, shared_families)),
    )


def compare_arms(scored: Mapping[str, Mapping[Arm, ArmScores]]) -> list[ArmComparison]:
    """Test every arm against closed-book (the floor), and the retrieved arms against each other.

    The p-values are of the paired randomisation test on queries, corrected by Holm over all of
    these comparisons.
    """
    arms = [
        arm for arm in next(iter(scored.values())) if all(arm in side for side in scored.values())
    ]
    pairs = _chosen_pairs(arms)
    if not pairs:
        return []
    matrices = {
        task: np.array(
            [[side[arm].mean(query_id) for arm in arms] for query_id in common_queries(side)]
        )
        for task, side in scored.items()
    }
    return [
        ArmComparison(arms[pair.a].label, arms[pair.b].label, pair.by_task, pair.p_holm)
        for pair in compare_systems(matrices, pairs=pairs)
    ]


def _chosen_pairs(arms: Sequence[Arm]) -> list[tuple[int, int]]:
    """Return index pairs to test: each arm with closed-book, and systems with each other."""
    index = {arm: position for position, arm in enumerate(arms)}
    floor, ceiling = Arm("closed-book"), Arm("oracle")
    retrieved = [arm for arm in arms if arm.condition == "retrieved"]
    pairs = [(arm, floor) for arm in retrieved if floor in index]
    pairs += list(combinations(retrieved, 2))
    if floor in index and ceiling in index:
        pairs.append((ceiling, floor))
    pairs += [(arm, floor) for arm in arms if arm.condition == "distracted" and floor in index]
    return [(index[first], index[second]) for first, second in pairs]


def _choose_systems(answer_set: AnswerSet, systems: Sequence[str]) -> list[StoredAnswer]:
    answers = list(answer_set.answers().values())
    present = {answer.system for answer in answers}
    for system in systems:
        if system not in present:
            names = ", ".join(sorted(name for name in present if name)) or "none"
            raise DataError(
                f"{answer_set.name} on {answer_set.description.task} has no answers with "
                f"{system!r}; it has answers with: {names}."
            )
    return [answer for answer in answers if not systems or answer.system in ("", *systems)]


def _task_figures(task: str, scored: Mapping[Arm, ArmScores]) -> TaskFigures:
    query_ids = {query_id for side in scored.values() for query_id in side.answers}
    common = common_queries(scored)
    return TaskFigures(
        task, tuple(measure_arms([scored])), len(common), len(query_ids) - len(common)
    )


def _explain_unscored(
    answer_set: AnswerSet, scored: Mapping[Arm, ArmScores], scoring: Scoring
) -> str:
    name, task = answer_set.name, answer_set.description.task
    if not scored:
        return f"{name} on {task} has no answers yet; run r2med answer again."
    if any(not side.points for side in scored.values()):
        return (
            f"{name} on {task}: no answer can be scored by --score {scoring}. The references are "
            "too long for match and F1, and no judge graded the answers.\n"
            f"Grade them: r2med answer grade {name} --task {task} --judge LLM, or force "
            "--score f1."
        )
    return (
        f"{name} on {task}: no query has an answer under all conditions yet. Run r2med answer "
        "again to complete them."
    )


def _cost(answers: Sequence[StoredAnswer]) -> AnswerCost:
    prices = [answer.money for answer in answers if answer.money is not None]
    return AnswerCost(
        answers=len(answers),
        tokens=sum(answer.prompt_tokens + answer.completion_tokens for answer in answers),
        money=sum(prices) if prices else None,
        seconds=sum(answer.seconds for answer in answers),
    )


def _shared_families(answer_set: AnswerSet, grades: JudgementSet) -> set[str]:
    """Return the model families (else models) that the answering model shares with its judges."""
    description = answer_set.description
    answering = [description.llm, str(description.model.get("model", ""))]
    judging = [grades.name, *grades.description.models]
    shared_models = {name for name in answering if name and name in judging}
    return families_of(answering) & families_of(judging) or shared_models


def _warnings(
    tasks: Sequence[TaskFigures],
    judges: Mapping[str, None],
    calibrations: Sequence[object],
    shared_families: Collection[str],
) -> list[str]:
    warnings = []
    for figures in tasks:
        if figures.unscored:
            warnings.append(
                f"{figures.task}: {plural(figures.unscored, 'query')} left out, because an answer "
                "is missing, ungraded or has a reference that is too long for F1."
            )
        for row in figures.rows:
            label = Arm(row.condition, row.system).label
            if row.missing:
                warnings.append(
                    f"{figures.task}, {label}: {plural(row.missing, 'answer')} of {row.answers} "
                    "empty, refused or too long; each counts as wrong."
                )
            if row.uncited == 1.0:
                warnings.append(f"{figures.task}, {label}: no answer cites a passage.")
    if shared_families:
        warnings.append(
            f"{', '.join(judges)} and the model that answers are of one model family "
            f"({', '.join(sorted(shared_families))}): judges favour answers of the same family."
        )
    if judges and not calibrations:
        warnings.append(
            f"the grades by {', '.join(judges)} were not compared with labels of people; "
            "see r2med answer label."
        )
    return warnings


def _flat_row(report: AnswerReport, task: str, row: ArmFigures) -> dict[str, Any]:
    abstentions = row.abstentions
    return {
        "set": report.name,
        "llm": report.llm,
        "task": task,
        "condition": row.condition,
        "system": row.system or None,
        "queries": row.queries,
        "answers": row.answers,
        "score": row.score,
        "low": row.interval.low,
        "high": row.interval.high,
        "spread": row.spread,
        "share": row.share,
        "share_low": row.share_interval.low if row.share_interval else None,
        "share_high": row.share_interval.high if row.share_interval else None,
        "option": row.option,
        "match": row.match,
        "f1": row.f1,
        **{grade: row.shares.get(grade) for grade in ("correct", "partly", "wrong")},
        "abstained": row.abstained,
        "right_abstentions": abstentions.right if abstentions else None,
        "wrong_abstentions": abstentions.wrong if abstentions else None,
        "citation_precision": row.citation_precision,
        "citation_recall": row.citation_recall,
        "uncited": row.uncited,
        "missing": row.missing,
    }
