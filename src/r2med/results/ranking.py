"""A ranking to be looked into: what a text names, on exactly this task's data, in scoring order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from r2med.errors import DataError
from r2med.results.lookup import find_named, newest
from r2med.results.record import Result
from r2med.retrieve.conditions import Tell, log
from r2med.retrieve.given.files import locate_run
from r2med.retrieve.given.fitting import fitted
from r2med.runs import Run
from r2med.runs.ties import ordered
from r2med.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Ranking:
    """A named run with its ties resolved; `result` is None for a run file."""

    name: str
    run: Run
    result: Result | None = None


def find_ranking(
    text: str, results: Sequence[Result], task: Task, folder: Path, tell: Tell = log
) -> Ranking:
    """The run of a run file, a stored result's folder, or a system in `results` (newest first)."""
    named = find_named(text, results, folder, task=task.name)
    if named.file is not None:
        return Ranking(text, ordered(file_run(named.file, task, tell)))
    same = [result for result in named.results if result.record.task.hash == task.hash]
    if not same:
        record = named.results[0].record.task
        raise DataError(
            f"{named.name}: its stored result is of {record.name}, data {record.hash[:12]}; "
            f"{task.name} is now data {task.hash[:12]}.\n"
            f"Run it again: r2med eval '{named.results[0].system}' --task {task.name}"
        )
    result = newest(same, tell)
    return Ranking(named.name, result.ranked, result)


def file_run(path: Path, task: Task, tell: Tell) -> Run:
    """The run in a file, fitted to a task; what does not fit is told."""
    run, findings = locate_run(str(path)).read()
    fit, findings = fitted(run, task, findings, str(path))
    for notice in findings.notices():
        tell(f"{path}: {notice}")
    return fit


def listed(run: Run, query: str) -> list[str]:
    """The documents of a query, best first; none for a query that the run lacks."""
    row = run.query_ids.index(query).as_py()
    if row < 0:
        return []
    codes = run.documents[run.offsets[row] : run.offsets[row + 1]]
    names: list[str] = run.document_ids.take(pa.array(codes)).to_pylist()
    return names


def grades(task: Task) -> dict[str, dict[str, int]]:
    """Judgements by query and document."""
    found: dict[str, dict[str, int]] = {}
    judged = task.judgements
    columns = (judged.query_ids.to_pylist(), judged.document_ids.to_pylist())
    for query, document, grade in zip(*columns, judged.scores.tolist(), strict=True):
        found.setdefault(query, {})[document] = grade
    return found
