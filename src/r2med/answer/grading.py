"""Correctness by a judge model, and its calibration against labels of people.

Grades and labels are stored in the folder of the answer set, with the stores of `judge`: they are
judgements about answers and never mix with judgements about documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from r2med.answer.conditions import CONDITIONS
from r2med.answer.correctness import GRADES, Correctness, final_answer
from r2med.answer.store import AnswerSet, StoredAnswer
from r2med.errors import DataError, MissingError, UsageError, nearest
from r2med.judge.agreement import (
    Statistic,
    count_pairs,
    kappa_interval,
    percent_interval,
)
from r2med.judge.judging import AnswerCount, check_answers
from r2med.judge.panel import Item, Panel, Show
from r2med.judge.review import ReviewQueue, ReviewStore, build_queue
from r2med.judge.rubric import Rubric, find_rubric, read_rubric
from r2med.judge.store import JudgementSet, JudgementStore, Pair, SetDescription
from r2med.remote.budget import RequestEstimate
from r2med.tasks.task import Task

_RUBRIC = Path(__file__).parent / "rubrics" / "correctness.toml"
_CHUNK = 256


@dataclass(frozen=True)
class JudgeCalibration:
    """How a judge of answers agrees with people, on the answers that both graded."""

    judge: str
    answers: int
    confusion: Mapping[Correctness, Mapping[Correctness, int]]
    """Counts by the label of people, then by the grade of the judge."""
    agreement: Statistic
    """Share of answers with equal grades."""
    kappa: Statistic
    """Cohen's kappa over the four grades."""
    mean_judge: float | None
    """The judge's mean score on these answers."""
    mean_people: float | None

    def to_json(self) -> dict[str, Any]:
        """All figures as JSON values."""
        return {
            "judge": self.judge,
            "answers": self.answers,
            "confusion": {label: dict(row) for label, row in self.confusion.items()},
            "agreement": _statistic_json(self.agreement),
            "kappa": _statistic_json(self.kappa),
            "mean_judge": self.mean_judge,
            "mean_people": self.mean_people,
        }


def find_answer_rubric(name: str | None) -> Rubric:
    """Return the package's correctness rubric, or a rubric of that scale from a TOML file.

    Raises:
        UsageError: The rubric needs other texts or has another scale.
    """
    if name is None or name == "correctness":
        return read_rubric(_RUBRIC)
    rubric = find_rubric(name)
    if set(rubric.fields) - {"query", "answer", "candidate"} or "candidate" not in rubric.fields:
        raise UsageError(
            f"rubric {rubric.name!r} is not a rubric for answers: its fields are "
            f"{', '.join(rubric.fields)}; expected query, answer (the reference) and candidate."
        )
    if rubric.scale != list(GRADES):
        raise UsageError(
            f"rubric {rubric.name!r} has the scale {rubric.scale}; expected {list(GRADES)}: "
            "abstained, wrong, partly, correct."
        )
    return rubric


def open_grades(answers: AnswerSet, panel: Panel) -> JudgementSet:
    """Open the stored grades that a panel gave to an answer set; no model is asked.

    A new panel starts with an empty set of grades.
    """
    description = answers.description
    models = "+".join(chat.llm.name for chat in panel.judges)
    name = "".join(c if c.isalnum() or c in "._=-" else "-" for c in models).strip("-.")[:80]
    return _grade_store(answers).open(
        SetDescription(
            name=name,
            task=description.task,
            suite=description.suite,
            texts=description.data,
            rubric=panel.rubric,
            judges=panel.identities,
            samples=panel.samples,
            combine=panel.combine,
            depth=description.k,
        )
    )


def find_grades(answers: AnswerSet, judge: str | None) -> JudgementSet | None:
    """Return the grades by a judge, by default the newest judge; None if no judge graded.

    Raises:
        MissingError: The judge graded no answer of this set.
    """
    sets = {graded.name: graded for graded in _grade_store(answers).sets()}
    if judge is None:
        newest = sorted(sets.values(), key=lambda graded: graded.description.created)
        return newest[-1] if newest else None
    if judge not in sets:
        raise MissingError(
            f"{answers.name} on {answers.description.task} has no grades by {judge!r}. "
            f"{nearest(judge, sets) if sets else 'It has none.'}\n"
            f"Grade its answers: r2med answer grade {answers.name} --task "
            f"{answers.description.task} --judge LLM"
        )
    return sets[judge]


def items_to_grade(answers: Sequence[StoredAnswer]) -> list[Item]:
    """Return the answers for a judge to grade; equal answers to one question are graded once.

    Options, abstentions and missing answers are read from the text and need no judge.
    """
    items: dict[Pair, Item] = {}
    labels: dict[Pair, dict[str, None]] = {}
    order = {condition: index for index, condition in enumerate(CONDITIONS)}
    for answer in sorted(answers, key=lambda answer: order[answer.condition]):
        if answer.option is not None or answer.abstained or answer.is_missing:
            continue
        pair = (answer.query_id, answer.item_id)
        labels.setdefault(pair, {})[f"{answer.condition} {answer.system}".strip()] = None
        items[pair] = Item(
            query_id=answer.query_id,
            item_id=answer.item_id,
            texts={
                "query": answer.question,
                "answer": answer.reference,
                "candidate": final_answer(answer.text),
            },
            systems=tuple(labels[pair]),
        )
    return list(items.values())


def ungraded_items(answers: AnswerSet, grades: JudgementSet) -> list[Item]:
    """Return the items of an answer set that have no grade yet."""
    graded = grades.grades()
    items = items_to_grade(list(answers.answers().values()))
    return [item for item in items if (item.query_id, item.item_id) not in graded]


def estimate_grading(
    answers: AnswerSet, panel: Panel, grades: JudgementSet
) -> list[tuple[str, RequestEstimate]]:
    """Return the expected calls, tokens and cost of grading, by judge model."""
    return panel.estimate(ungraded_items(answers, grades))


def grade_answers(
    answers: AnswerSet, panel: Panel, grades: JudgementSet, *, show: Show = lambda *_: None
) -> int:
    """Grade the answers that have no grade yet, and return their number.

    Raises:
        DataError: More than 5 % of the judge's answers cannot be read; grades so far are kept.
    """
    items = ungraded_items(answers, grades)
    count = AnswerCount()
    for start in range(0, len(items), _CHUNK):
        judgements = panel.ask(items[start : start + _CHUNK], show=show)
        grades.add(judgements)
        count.add(judgements)
        check_answers(count, panel)
    return len(items)


def judged_correctness(grades: JudgementSet | None) -> dict[Pair, Correctness]:
    """Return the correctness of every graded answer, by query and answer id."""
    if grades is None:
        return {}
    return {pair: GRADES[grade] for pair, grade in grades.grades().items()}


def open_labels(answers: AnswerSet) -> ReviewStore:
    """Open the stored labels that people gave to an answer set."""
    description = answers.description
    return ReviewStore(answers.folder, description.task, description.suite, warn=answers.warn)


def build_label_queue(
    answers: AnswerSet, grades: JudgementSet | None, task: Task, size: int
) -> ReviewQueue:
    """Sample graded answers for people to label: grades and conditions take turns.

    Raises:
        MissingError: No answer was graded by a judge.
    """
    if grades is None:
        name = answers.name
        raise MissingError(
            f"{name} on {task.name} has no graded answers to label.\n"
            f"Grade them: r2med answer grade {name} --task {task.name} --judge LLM"
        )
    return build_queue(task, [grades], size=size, has_checks=False)


def label_texts(answers: AnswerSet) -> Callable[[Pair], Mapping[str, str]]:
    """Return a function from a pair to the texts that people see; the condition stays hidden."""
    items = {
        (item.query_id, item.item_id): item.texts
        for item in items_to_grade(list(answers.answers().values()))
    }

    def find(pair: Pair) -> Mapping[str, str]:
        texts = items.get(pair)
        if texts is None:
            raise DataError(f"{answers.name}: the queue has an answer that was replaced since.")
        return {"query": texts["query"], "answer": texts["answer"], "passage": texts["candidate"]}

    return find


def calibrate_judge(answers: AnswerSet, grades: JudgementSet | None) -> JudgeCalibration | None:
    """Compare the grades of a judge with the labels of people; None without any label."""
    if grades is None:
        return None
    store = open_labels(answers)
    if not store.exists:
        return None
    labels, graded = store.final_labels(), grades.grades()
    shared = [pair for pair in labels if pair in graded]
    if not shared:
        return None
    people, judge = [labels[pair] for pair in shared], [graded[pair] for pair in shared]
    scale = list(GRADES)
    counts = count_pairs(people, judge, scale)
    points = {grade: {3: 1.0, 2: 0.5}.get(grade, 0.0) for grade in scale}
    return JudgeCalibration(
        judge=grades.name,
        answers=len(shared),
        confusion={
            GRADES[label]: {
                GRADES[grade]: int(counts[row, column]) for column, grade in enumerate(scale)
            }
            for row, label in enumerate(scale)
        },
        agreement=percent_interval(people, judge, scale),
        kappa=kappa_interval(people, judge, scale),
        mean_judge=float(np.mean([points[grade] for grade in judge])),
        mean_people=float(np.mean([points[label] for label in people])),
    )


def _grade_store(answers: AnswerSet) -> JudgementStore:
    return JudgementStore(answers.folder, warn=answers.warn)


def _statistic_json(statistic: Statistic) -> dict[str, float | None]:
    interval = statistic.interval
    return {
        "value": statistic.value,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
    }
