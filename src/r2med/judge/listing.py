"""The contents of judgement sets, for `r2med judge list`, `show` and `export`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pyarrow as pa

from r2med.judge.store import Judgement, JudgementSet, Pair
from r2med.tables import Tabular, make_table

ExportFormat = Literal["qrels", "jsonl", "csv"]
#: Formats by the ending of a file; all other endings are TREC judgements.
EXPORT_FORMATS: Mapping[str, ExportFormat] = {".jsonl": "jsonl", ".csv": "csv"}


@dataclass(frozen=True)
class JudgementSetRow:
    """One judgement set in a list."""

    name: str
    task: str
    judges: tuple[str, ...]
    rubric: str
    pairs: int
    relevant: int
    undecided: int
    unreadable: int
    calibration: int
    created: str
    folder: str


@dataclass(frozen=True, eq=False)
class StoredSets(Tabular):
    """The judgement sets of a results folder."""

    rows: Sequence[JudgementSetRow]

    is_drawn = True

    def to_arrow(self) -> pa.Table:
        """One row per set."""
        columns: Mapping[str, type] = {
            "name": str,
            "task": str,
            "judges": str,
            "rubric": str,
            "pairs": int,
            "relevant": int,
            "undecided": int,
            "unreadable": int,
            "calibration": int,
            "created": str,
            "folder": str,
        }
        rows = [{**asdict(row), "judges": ", ".join(row.judges)} for row in self.rows]
        return make_table(columns, rows)


def describe_set(judged: JudgementSet) -> JudgementSetRow:
    """Count the judgements of a set; pairs of the calibration sample are counted separately."""
    stored = judged.judgements().values()
    pooled = [judgement for judgement in stored if judgement.purpose == "pool"]
    graded = [judgement.grade for judgement in pooled if judgement.grade is not None]
    called = [judged.rubric.is_relevant(grade) for grade in graded]
    return JudgementSetRow(
        name=judged.name,
        task=judged.description.task,
        judges=tuple(judged.description.models),
        rubric=judged.rubric.name,
        pairs=len(graded),
        relevant=called.count(True),
        undecided=called.count(None),
        unreadable=len(pooled) - len(graded),
        calibration=sum(judgement.purpose == "calibration" for judgement in stored),
        created=judged.description.created,
        folder=str(judged.folder),
    )


def judgement_row(judgement: Judgement, judged: JudgementSet) -> dict[str, Any]:
    """Return a judgement as JSON values, with the relevance that its grade means."""
    relevant = None if judgement.grade is None else judged.rubric.is_relevant(judgement.grade)
    return {
        **asdict(judgement),
        "relevant": relevant,
        "rubric": judged.rubric.name,
        "rubric_hash": judged.rubric.hash,
        "models": judged.description.models,
    }


def export_set(judged: JudgementSet, form: ExportFormat) -> str:
    """Return a set as text: TREC judgements, one JSON record per line, or CSV.

    TREC judgements have the decided pairs of the pool only: relevant pairs with their grade, others
    with 0.
    """
    stored = sorted(judged.judgements().values(), key=lambda judgement: judgement.pair)
    if form == "jsonl":
        return "".join(json.dumps(judgement_row(j, judged)) + "\n" for j in stored)
    if form == "qrels":
        return "".join(
            f"{pair[0]} 0 {pair[1]} {score}\n" for pair, score in _scores(stored, judged).items()
        )
    text = io.StringIO()
    columns = ("query_id", "item_id", "grade", "relevant", "purpose", "systems", "rationale")
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for judgement in stored:
        row = judgement_row(judgement, judged)
        writer.writerow({**row, "systems": "; ".join(judgement.systems)})
    return text.getvalue()


def _scores(stored: Sequence[Judgement], judged: JudgementSet) -> dict[Pair, int]:
    scores = {}
    for judgement in stored:
        if judgement.grade is not None and judgement.purpose == "pool":
            relevant = judged.rubric.is_relevant(judgement.grade)
            if relevant is not None:
                scores[judgement.pair] = judgement.grade if relevant else 0
    return scores
