"""Every problem of a folder's data at once, each with its file, line and id; or what the data is.

Loading stops at the first problem, which is right for an evaluation and slow for whoever prepares
data. Here every line is read by the same rules, and what is wrong is collected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from r2med.errors import DataError, R2MedError
from r2med.tasks.load import load_task
from r2med.tasks.reading.collection import PARTS, read_part
from r2med.tasks.reading.fields import Rows, Where
from r2med.tasks.reading.source import Source, find_source, split_selection
from r2med.tasks.task import Task


@dataclass(frozen=True)
class Problem:
    """Something that an evaluation would refuse, drop, or be wrong about."""

    file: str
    line: int | None
    """The line, in Parquet the row; None where it is the whole file."""
    id: str | None
    problem: str


@dataclass(frozen=True)
class Checked:
    """What a check of one folder found; `task` is None where the data cannot be loaded."""

    folder: Path
    problems: tuple[Problem, ...]
    task: Task | None


def check(place: str | Path) -> Checked:
    """All problems of the task in a folder (`FOLDER#SPLIT` where it holds several)."""
    folder, split = split_selection(place)
    try:
        source = find_source(folder, split)
    except R2MedError as problem:
        if not folder.is_dir():
            raise
        return Checked(folder, (Problem(str(folder), None, None, str(problem)),), None)
    problems = _problems(source)
    try:
        return Checked(folder, tuple(problems), load_task(place, use_copy=False))
    except R2MedError as problem:
        problems = problems or [Problem(str(folder), None, None, str(problem))]
        return Checked(folder, tuple(problems), None)


_Note = Callable[[object, Where, object], None]
"""Takes what is wrong, where it stands, and the id there."""


def _problems(source: Source) -> list[Problem]:
    problems: list[Problem] = []

    def note(problem: object, where: Where, id: object) -> None:
        text = str(problem).partition("\n")[0].removeprefix(f"{where}: ")
        known = None if id is None else str(id)
        problems.append(Problem(str(where.file), where.number, known, text))

    parts: dict[str, Rows] = {}
    for part in PARTS:
        file, before = Where(getattr(source, part)[0]), len(problems)
        try:
            parts[part] = read_part(source, part, note)
            if not len(parts[part]) and len(problems) == before:
                note("the file holds nothing", file, None)
        except DataError as error:
            note(error, file, None)
    for part, what in (("corpus", "document"), ("queries", "query")):
        if part in parts:
            _check_texts(parts[part], what, note)
    if all(each.line is not None for each in problems):
        _check_pairs(parts["judgements"], _ids(parts["corpus"]), _ids(parts["queries"]), note)
    files = [str(file) for file in source.files]
    return sorted(problems, key=lambda each: (files.index(each.file), each.line or 0))


def _ids(rows: Rows) -> set[str]:
    return set(rows.columns["id"].to_pylist())


def _check_texts(rows: Rows, what: str, note: _Note) -> None:
    """Ids that were used before, and rows without text."""
    first: dict[str, int] = {}
    texts = rows.columns["text"].to_pylist()
    for row, (name, text) in enumerate(zip(rows.columns["id"].to_pylist(), texts, strict=True)):
        earlier = first.setdefault(name, row)
        if earlier != row:
            place = rows.where(earlier)
            used = f"this {what} id was already used in {place.unit} {place.number}"
            note(used, rows.where(row), name)
        if not text.strip():
            note(f"the {what} has no text", rows.where(row), name)


def _check_pairs(rows: Rows, documents: set[str], queries: set[str], note: _Note) -> None:
    """Unknown ids, contradictions, and queries without a positive."""
    first: dict[tuple[str, str], int] = {}
    columns = [rows.columns[name].to_pylist() for name in ("query", "document", "score")]
    for row, (query, document, score) in enumerate(zip(*columns, strict=True)):
        pair, where = f"{query} {document}", rows.where(row)
        if query not in queries:
            note(f'there is no query "{query}"', where, pair)
        if document not in documents:
            note(f'there is no document "{document}"', where, pair)
        earlier = first.setdefault((query, document), row)
        if score != (before := columns[2][earlier]):
            place = rows.where(earlier)
            note(f"judged {score} here, but {before} in {place.unit} {place.number}", where, pair)
    positive = {query for query, score in zip(columns[0], columns[2], strict=True) if score > 0}
    judged = {query: row for row, query in reversed(list(enumerate(columns[0])))}
    for query in sorted(queries & judged.keys() - positive):
        where = rows.where(judged[query])
        note("the query is judged, but has no positive document", where, query)
