"""Read the questions that a benchmark starts from: exams, posts, case reports and tables.

Rows of every format become `SourceItem`s. A row without a question or an answer is left out and
reported with its file and line.
"""

from __future__ import annotations

import csv
import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from r2med.build.folder import BuildFolder
from r2med.build.posts import read_posts
from r2med.errors import DataError, MissingError, UsageError, nearest
from r2med.tasks.reading.jsonl import decode_line
from r2med.tasks.reading.lines import blocks, lines

Format = Literal["medqa", "medxpertqa", "stackexchange", "cases", "table"]
FORMATS: tuple[Format, ...] = get_args(Format)
_FIELDS = ("id", "question", "answer", "reasoning", "references")
#: Columns of each format, by field; the first one that a row has is used.
COLUMNS: Mapping[Format, Mapping[str, tuple[str, ...]]] = {
    "medqa": {
        "id": ("id", "question_id"),
        "question": ("question",),
        "answer": ("answer",),
        "reasoning": ("reasoning", "explanation"),
        "references": ("references",),
    },
    "medxpertqa": {
        "id": ("id",),
        "question": ("question",),
        "answer": ("answer", "label"),
        "reasoning": ("reasoning", "explanation"),
        "references": ("references",),
    },
    "stackexchange": {
        "id": ("id", "Id", "question_id"),
        "question": ("question", "body", "Body"),
        "answer": ("answer", "accepted_answer"),
        "reasoning": ("reasoning",),
        "references": ("references", "links"),
    },
    "cases": {
        "id": ("id", "case_id", "pmcid"),
        "question": ("case", "text", "question"),
        "answer": ("diagnosis", "answer"),
        "reasoning": ("reasoning", "discussion"),
        "references": ("references",),
    },
    "table": {name: (name,) for name in _FIELDS},
}
#: Files that the stage writes itself.
_OUTPUTS = ("items.jsonl", "items-dropped.jsonl")
_SOURCE_KEYS = ("path", "format", "licence", "columns", "ask")
#: What is asked about a case report, unless the source says otherwise.
_CASE_QUESTION = "What is the most likely diagnosis?"
_OPTIONS_LIST = re.compile(r"\n?\s*Answer Choices\s*:.*", re.IGNORECASE | re.DOTALL)
_LINK = re.compile(r"https?://[^\s\"'<>)\]]+")
_TAG = re.compile(r"<[^>]+>")


@dataclass(frozen=True)
class SourceItem:
    """A question with its answer, unchanged from the source."""

    id: str
    question: str
    answer: str
    source: str
    line: int
    licence: str
    options: Mapping[str, str] = field(default_factory=dict)
    reasoning: str = ""
    references: tuple[str, ...] = ()
    """Links or sources of documents that the answer refers to."""


@dataclass(frozen=True)
class InvalidRow:
    """A row that cannot be used."""

    source: str
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.source}, line {self.line}: {self.problem}."


@dataclass(frozen=True)
class ItemSource:
    """An entry of `[[items.sources]]` in build.toml."""

    path: Path
    name: str
    """The path as written in build.toml, shown in records and cards."""
    format: Format
    licence: str
    columns: Mapping[str, str]
    ask: str
    """The question that is appended to a case report."""


def item_sources(folder: BuildFolder) -> list[ItemSource]:
    """Return the sources of build.toml.

    Raises:
        DataError: An entry has an unknown key, format or column.
        MissingError: There is no source, or a file does not exist.
    """
    entries = folder.table("items").get("sources", [])
    where = f"{folder.settings_path}: [[items.sources]]"
    if not entries:
        raise MissingError(f"{where}: name at least one file with path and format.")
    return [_read_source(folder, entry, where) for entry in entries]


def _read_source(folder: BuildFolder, entry: Mapping[str, Any], where: str) -> ItemSource:
    for key in entry:
        if key not in _SOURCE_KEYS:
            raise DataError(f"{where}: there is no key {key!r}. {nearest(key, _SOURCE_KEYS)}")
    form = entry.get("format", "table")
    if form not in FORMATS:
        raise DataError(f"{where}: format {form!r} is not known. {nearest(str(form), FORMATS)}")
    columns = entry.get("columns", {})
    for name in columns:
        if name not in _FIELDS:
            raise DataError(f"{where}: columns has no field {name!r}. {nearest(name, _FIELDS)}")
    name = str(entry.get("path", ""))
    path = folder.resolve(name, where)
    if not path.is_file():
        raise MissingError(f"{where}: {path} does not exist.")
    if path.resolve().parent == folder.path.resolve() and path.name in _OUTPUTS:
        raise UsageError(f"{where}: `build items` writes {path}; rename the source.")
    return ItemSource(
        path=path,
        name=name,
        format=form,
        licence=str(entry.get("licence", "not stated")),
        columns={key: str(value) for key, value in columns.items()},
        ask=str(entry.get("ask", _CASE_QUESTION if form == "cases" else "")),
    )


def read_items(source: ItemSource) -> Iterator[SourceItem | InvalidRow]:
    """Yield an item for each row of a source, or an `InvalidRow` if the row cannot be used."""
    for line, row in _rows(source):
        outcome = _to_item(source, line, row)
        yield InvalidRow(source.name, line, outcome) if isinstance(outcome, str) else outcome


def _to_item(source: ItemSource, line: int, row: Mapping[str, Any]) -> SourceItem | str:
    """Return the item of a row, or a description of the row's problem."""
    values = {name: _find_value(source, row, name) for name in _FIELDS}
    question, answer = _text(values["question"]), _text(values["answer"])
    if source.format == "stackexchange":
        title = _text(row.get("title", row.get("Title", "")))
        links = _LINK.findall(str(values["answer"] or ""))
        values["references"] = values["references"] or links
        question, answer = _plain(question), _plain(answer)
        question = f"{_plain(title)}\n{question}" if title else question
    options = _read_options(row.get("options"))
    if source.format == "medxpertqa":
        question = _OPTIONS_LIST.sub("", question)
    answer = options.get(answer, answer)  # some sets name the letter
    if not question.strip():
        return "the question is missing or empty"
    if not answer.strip():
        return "the answer is missing or empty"
    if source.ask and source.ask not in question:
        question = f"{question.strip()}\n{source.ask}"
    return SourceItem(
        id=_text(values["id"]) or f"{source.path.name.partition('.')[0]}-{line}",
        question=question.strip(),
        answer=answer.strip(),
        source=source.name,
        line=line,
        licence=source.licence,
        options=options,
        reasoning=_text(values["reasoning"]).strip(),
        references=_read_references(values["references"]),
    )


def _find_value(source: ItemSource, row: Mapping[str, Any], name: str) -> object:
    if name in source.columns:
        column = source.columns[name]
        if column not in row and name in ("id", "question", "answer"):
            raise UsageError(
                f"{source.path}: there is no column {column!r} for {name}. "
                f"{nearest(column, map(str, row))}"
            )
        return row.get(column)
    return next((row[column] for column in COLUMNS[source.format][name] if column in row), None)


def _rows(source: ItemSource) -> Iterator[tuple[int, Mapping[str, Any]]]:
    suffixes = {suffix.lower() for suffix in source.path.suffixes}
    if {".csv", ".tsv"} & suffixes:
        yield from _read_table(source.path, "\t" if ".tsv" in suffixes else None)
        return
    if source.format == "stackexchange" and ".xml" in suffixes:
        yield from read_posts(source.path)
        return
    for number, content in lines(source.path):
        where = f"{source.path}, line {number}"
        try:
            row = json.loads(decode_line(content, where))
        except (ValueError, RecursionError) as problem:
            raise DataError(f"{where}: not JSON ({problem}).") from None
        if not isinstance(row, dict):
            raise DataError(f"{where}: a JSON {type(row).__name__}, expected an object.")
        yield number, row


def _read_table(path: Path, delimiter: str | None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    text_lines = (
        decode_line(line, str(path)) + "\n"
        for block in blocks(path)
        for line in block.removesuffix(b"\n").split(b"\n")
    )
    first = next(text_lines, "")
    separator = delimiter or (";" if first.count(";") > first.count(",") else ",")
    header = [name.strip() for name in next(csv.reader([first], delimiter=separator), [])]
    reader = csv.reader(text_lines, delimiter=separator, strict=True)
    line = 2
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield line, dict(zip(header, cells, strict=False))
            line = reader.line_num + 2
    except csv.Error as problem:
        raise DataError(f"{path}, line {line}: not readable as CSV ({problem}).") from None


def _read_options(value: object) -> dict[str, str]:
    if isinstance(value, dict):
        return {str(letter): _text(text) for letter, text in value.items()}
    if isinstance(value, list):
        if all(isinstance(entry, dict) for entry in value):
            return {str(entry.get("letter", "")): _text(entry.get("content")) for entry in value}
        return {chr(ord("A") + index): _text(text) for index, text in enumerate(value)}
    return {}


def _read_references(value: object) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else re.split(r"[\s;]+", _text(value))
    return tuple(dict.fromkeys(text for entry in texts if (text := _text(entry).strip())))


def _text(value: object) -> str:
    return "" if value is None or isinstance(value, dict | list) else str(value)


def _plain(markup: str) -> str:
    """Return the text of a post without its HTML."""
    return html.unescape(_TAG.sub(" ", markup)).strip()
