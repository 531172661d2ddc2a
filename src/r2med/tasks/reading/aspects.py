"""Aspects of judgements: which part of a query's question a document supports.

Aspects are in the field `aspect` (with an optional `weight`) of JSON lines of judgements, in the
second column of a TREC diversity file, or in a file `aspects.jsonl` beside the data. A pair with
several aspects has several lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from r2med.errors import DataError
from r2med.tasks.reading.jsonl import decode_line
from r2med.tasks.reading.lines import lines
from r2med.tasks.reading.source import find_source
from r2med.tasks.task import Task

ASPECTS_FILE = "aspects.jsonl"
_HINT = 'Each line is {"q_id": "...", "p_id": "...", "aspect": "...", "weight": 1}.'


@dataclass(frozen=True)
class AspectJudgement:
    """A judgement that a document supports one aspect of a query."""

    query_id: str
    document_id: str
    aspect: str
    score: int = 1
    weight: float = 1.0


def read_task_aspects(task: Task) -> list[AspectJudgement]:
    """Read the aspects of a task's judgements; empty if the data has no aspects.

    Excluded documents are left out.
    """
    if not task.source.is_dir():
        return []
    path = task.source / ASPECTS_FILE
    if not path.is_file():
        source = find_source(task.source, task.split)
        if source.layout == "parquet":
            return []
        [path] = source.parts["judgements"]
    query_ids = set(task.queries.ids.to_pylist())
    return [
        row
        for row in read_aspects(path)
        if row.query_id in query_ids
        and row.document_id not in task.exclusions.get(row.query_id, ())
    ]


def read_aspects(path: Path) -> list[AspectJudgement]:
    """Read judgements with aspects from JSON lines or TREC diversity; skip those without.

    Raises:
        DataError: An aspect, weight or score is not valid.
    """
    return list(_read_rows(path))


def _read_rows(path: Path) -> Iterator[AspectJudgement]:
    for number, line in lines(path):
        location = f"{path}, line {number}"
        if line.lstrip().startswith(b"{"):
            row = _read_object(line, location)
        else:
            row = _read_columns(decode_line(line, location).split())
        if row is not None:
            yield row


def _read_object(line: bytes, location: str) -> AspectJudgement | None:
    try:
        record = json.loads(line)
    except ValueError as problem:
        raise DataError(f"{location}: not a JSON object ({problem}).\n{_HINT}") from None
    aspect = record.get("aspect")
    if aspect is None:
        return None
    if not isinstance(aspect, str) or not aspect:
        raise DataError(f'{location}: "aspect" must be a text.\n{_HINT}')
    weight, score = record.get("weight", 1), record.get("score", 1)
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not is_number or not 0 < weight < float("inf"):
        raise DataError(f'{location}: "weight" must be a number above 0.\n{_HINT}')
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise DataError(f'{location}: "score" must be a number.\n{_HINT}')
    try:
        ids = str(record["q_id"]), str(record["p_id"])
    except KeyError as problem:
        raise DataError(f"{location}: {problem} is missing.\n{_HINT}") from None
    return AspectJudgement(*ids, aspect, int(score), float(weight))


def _read_columns(cells: list[str]) -> AspectJudgement | None:
    """Read `query aspect document score`; None for aspect 0, as in ordinary TREC files."""
    if len(cells) != 4 or cells[1] in ("0", "Q0") or not cells[3].lstrip("-").isdigit():
        return None
    query_id, aspect, document_id, score = cells
    return AspectJudgement(query_id, document_id, aspect, int(score))
