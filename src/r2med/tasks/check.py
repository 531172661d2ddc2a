"""Every problem of a folder's data at once, each with its file, line and id; or what the data is.

Loading stops at the first problem, which is right for an evaluation and slow for whoever prepares
data. Here every line is read by the same rules, and what is wrong is collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from r2med.errors import DataError, R2MedError
from r2med.tasks.load import load_task
from r2med.tasks.reading import fields
from r2med.tasks.reading.fields import Field, record_hint
from r2med.tasks.reading.jsonl import field_value, json_object
from r2med.tasks.reading.judgements import JudgementLines, holds_json
from r2med.tasks.reading.lines import lines
from r2med.tasks.reading.source import Source, find_source, split_selection
from r2med.tasks.task import Task


@dataclass(frozen=True)
class Problem:
    """Something that an evaluation would refuse, drop, or be wrong about."""

    file: str
    line: int | None
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
    problems = list(_problems(source))
    try:
        return Checked(folder, tuple(problems), load_task(place, use_copy=False))
    except R2MedError as problem:
        problems = problems or [Problem(str(folder), None, None, str(problem))]
        return Checked(folder, tuple(problems), None)


@dataclass
class _File:
    """The ids and texts of one file as far as they can be read, each with its line."""

    path: Path
    rows: list[tuple[int, dict[str, str | int | None]]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.path)

    def problem(self, line: int | None, id: object, text: str) -> None:
        shown = None if id is None else str(id)
        self.problems.append(Problem(self.name, line, shown, text.partition("\n")[0]))

    def attempt(self, line: int, id: object, read: Callable[[], object]) -> object:
        """What a reader returns, or None and its complaint noted."""
        try:
            return read()
        except DataError as error:
            self.problem(line, id, str(error).removeprefix(f"{self.path}, line {line}: "))
            return None


def _problems(source: Source) -> Iterator[Problem]:
    if source.layout == "parquet":  # whole columns are read at once, and name their own rows
        return
    beir = source.layout == "beir"
    corpus = _jsonl(source.corpus[0], fields.BEIR_DOCUMENT if beir else fields.DOCUMENT)
    queries = _jsonl(source.queries[0], fields.BEIR_QUERY if beir else fields.QUERY)
    judgements = _judgements(source.judgements[0])
    for file, what in ((corpus, "document"), (queries, "query")):
        _check_ids(file, what)
        _check_texts(file, what)
    _check_pairs(judgements, _ids(corpus), _ids(queries))
    for file in (corpus, queries, judgements):
        if not file.rows and not file.problems:
            file.problem(None, None, "the file holds nothing")
        yield from sorted(file.problems, key=lambda each: each.line or 0)


def _jsonl(path: Path, wanted: Sequence[Field]) -> _File:
    file = _File(path)
    for number, line in _lines(file):
        where = f"{path}, line {number}"
        hint = record_hint(tuple(wanted))
        record = file.attempt(number, None, lambda: json_object(line, where, hint))  # noqa: B023
        if not isinstance(record, dict):
            continue
        known = record.get(wanted[0].name)
        before = len(file.problems)
        row = {
            each.column: file.attempt(
                number,
                known,
                lambda: field_value(record, each, where, wanted),  # noqa: B023
            )
            for each in wanted
        }
        if len(file.problems) == before:
            file.rows.append((number, row))  # type: ignore[arg-type]
    return file


def _judgements(path: Path) -> _File:
    if ".jsonl" in path.suffixes or holds_json(path):
        return _jsonl(path, fields.JUDGEMENT)
    file, reader = _File(path), JudgementLines(path)
    for number, line in _lines(file):
        row = file.attempt(number, None, lambda: reader.read(number, line))  # noqa: B023
        if isinstance(row, tuple):
            file.rows.append((number, dict(zip(("query", "document", "score"), row, strict=True))))
    return file


def _lines(file: _File) -> Iterator[tuple[int, bytes]]:
    try:
        yield from lines(file.path)
    except DataError as error:
        file.problem(None, None, str(error).removeprefix(f"{file.path}: "))


def _check_ids(file: _File, what: str) -> None:
    first: dict[object, int] = {}
    for line, row in file.rows:
        earlier = first.setdefault(row["id"], line)
        if earlier != line:
            file.problem(line, row["id"], f"this {what} id was already used in line {earlier}")


def _check_texts(file: _File, what: str) -> None:
    for line, row in file.rows:
        if not (str(row["text"]).strip() or row.get("title")):
            file.problem(line, row["id"], f"the {what} has no text")


def _check_pairs(file: _File, documents: set[object], queries: set[object]) -> None:
    first: dict[tuple[object, object], tuple[int, object]] = {}
    for line, row in file.rows:
        query, document = row["query"], row["document"]
        pair = f"{query} {document}"
        if query not in queries:
            file.problem(line, pair, f'there is no query "{query}"')
        if document not in documents:
            file.problem(line, pair, f'there is no document "{document}"')
        score = row["score"]
        earlier, before = first.setdefault((query, document), (line, score))
        if score != before:
            file.problem(line, pair, f"judged {score} here, but {before} in line {earlier}")
    positive = {row["query"] for _, row in file.rows if int(row["score"] or 0) > 0}
    judged = {row["query"]: line for line, row in reversed(file.rows)}
    for each in sorted(queries & judged.keys() - positive, key=str):
        file.problem(judged[str(each)], each, "the query is judged, but has no positive document")


def _ids(file: _File) -> set[object]:
    return {row["id"] for _, row in file.rows}


def all_problems(checked: Iterable[Checked]) -> list[Problem]:
    """The problems of several folders."""
    return [problem for each in checked for problem in each.problems]
