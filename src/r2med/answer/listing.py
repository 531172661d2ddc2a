"""Lists, exports and the leaderboard of stored answer sets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from r2med.answer.grading import find_grades, judged_correctness
from r2med.answer.reporting import report_answers
from r2med.answer.scoring import Arm, ArmFigures, Scoring, find_correctness
from r2med.answer.store import AnswerSet, StoredAnswer
from r2med.errors import DataError
from r2med.judge.store import Pair
from r2med.tables import Tabular, csv_text, make_table, table_columns


@dataclass(frozen=True)
class AnswerSetRow:
    """One answer set in a list."""

    name: str
    task: str
    llm: str
    k: int
    systems: str
    queries: int
    answers: int
    samples: int
    judge: str | None
    created: str


@dataclass(frozen=True, eq=False)
class StoredAnswerSets(Tabular):
    """The answer sets of a results folder."""

    rows: Sequence[AnswerSetRow]

    is_drawn = True

    def to_arrow(self) -> pa.Table:
        """One row per set."""
        return make_table(table_columns(AnswerSetRow), [asdict(row) for row in self.rows])


@dataclass(frozen=True)
class BoardRow:
    """A leaderboard row: one model on one task, under a condition, with its system if any."""

    llm: str
    set: str
    task: str
    condition: str
    system: str | None
    k: int
    queries: int
    score: float
    low: float
    high: float
    share: float | None
    abstained: float
    citation_precision: float | None
    judge: str | None


@dataclass(frozen=True, eq=False)
class AnswerBoard(Tabular):
    """Answer scores of all models and systems, best first within a task."""

    rows: Sequence[BoardRow]
    left_out: Sequence[str]
    """Messages about answer sets that cannot be scored."""

    is_drawn = True

    def to_arrow(self) -> pa.Table:
        """One row per set, condition and system."""
        return make_table(table_columns(BoardRow), [asdict(row) for row in self.rows])


def describe_answers(answers: AnswerSet) -> AnswerSetRow:
    """Return the list entry of a set."""
    stored = answers.answers().values()
    description = answers.description
    grades = find_grades(answers, None)
    return AnswerSetRow(
        name=answers.name,
        task=description.task,
        llm=description.llm,
        k=description.k,
        systems=", ".join(dict.fromkeys(answer.system for answer in stored if answer.system)),
        queries=len({answer.query_id for answer in stored}),
        answers=len(stored),
        samples=max((answer.sample + 1 for answer in stored), default=0),
        judge=None if grades is None else grades.name,
        created=description.created,
    )


def rank_answers(sets: Sequence[AnswerSet], scoring: Scoring = "auto") -> AnswerBoard:
    """Return a leaderboard of answer sets, with a separate row for each condition."""
    rows: list[BoardRow] = []
    left_out: list[str] = []
    for answers in sets:
        try:
            report = report_answers([answers], scoring=scoring)
        except DataError as problem:
            left_out.append(str(problem).partition("\n")[0])
            continue
        rows += [_board_row(answers, row, report.judge) for row in report.tasks[0].rows]
    rows.sort(key=lambda row: (row.task, -row.score, row.llm, row.condition))
    return AnswerBoard(rows, left_out)


def answer_rows(answers: AnswerSet) -> list[dict[str, Any]]:
    """Return the answers of a set with their correctness as JSON values."""
    judged = judged_correctness(find_grades(answers, None))
    return [answer_row(answer, judged) for answer in answers.answers().values()]


def answer_row(answer: StoredAnswer, judged: Mapping[Pair, str]) -> dict[str, Any]:
    """Return one answer as JSON values."""
    return {**asdict(answer), "correctness": find_correctness(answer, judged)}  # type: ignore[arg-type]


def export_answers(answers: AnswerSet, suffix: str) -> str:
    """Return the answers of a set as JSON lines, or as CSV for the suffix .csv."""
    rows = answer_rows(answers)
    if suffix != ".csv":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    flat = [{**row, **_flatten(row)} for row in rows]
    columns = table_columns(StoredAnswer)
    columns.pop("retrieval", None)
    lists = dict.fromkeys(("passage_ids", "relevant", "cited", "correctness"), str)
    return csv_text(make_table({**columns, **lists}, flat))


def _flatten(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: " ".join(str(value) for value in row[name])
        for name in ("passage_ids", "relevant", "cited")
    }


def _board_row(answers: AnswerSet, row: ArmFigures, judge: str | None) -> BoardRow:
    arm = Arm(row.condition, row.system)
    return BoardRow(
        llm=answers.description.llm,
        set=answers.name,
        task=answers.description.task,
        condition=arm.condition,
        system=arm.system or None,
        k=answers.description.k,
        queries=row.queries,
        score=row.score,
        low=row.interval.low,
        high=row.interval.high,
        share=row.share,
        abstained=row.abstained,
        citation_precision=row.citation_precision,
        judge=judge,
    )
