"""Read the texts of training rows.

Every text of a row is read, however deeply it is nested. So no field has to be declared, and the
rows of a file may have different fields. `fields` (the option `--field`) limits reading to some
fields.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from r2med.audit.files import Chunk, table_reader
from r2med.tasks.reading.jsonl import describe_value

#: Fields that say where a text comes from.
_MARKS = {"id", "_id", "docid", "doc_id", "pid", "qid", "query_id", "corpus_id", "pmid", "pmcid"}
_MARKS |= {"source", "url", "title"}
#: Fields that say who speaks in a chat.
_SPEAKERS = {"role", "from"}
_APART = _MARKS | _SPEAKERS
_PROBLEMS = 3

Text = tuple[str, str]
"""The path of a field and its text."""


@dataclass(frozen=True)
class Row:
    """The texts of one row, and the ids and titles that say where they come from."""

    number: int
    texts: tuple[Text, ...]
    marks: tuple[str, ...] = ()
    lines: int = 1
    """Number of lines of the file that the row spans, if the file consists of lines."""


@dataclass
class ReadingCounts:
    """Counts of rows, texts and problems, and the first problems as messages."""

    rows: int = 0
    texts: int = 0
    unreadable: int = 0
    problems: list[str] = field(default_factory=list)
    unreadable_rows: list[tuple[int, int]] = field(default_factory=list)
    """The first line and the number of lines of each row that cannot be read."""
    fields: dict[str, int] = field(default_factory=dict)
    """The number of texts in every field, 0 for fields without texts."""

    def add(self, part: ReadingCounts) -> None:
        """Add the counts of another part."""
        self.rows += part.rows
        self.texts += part.texts
        self.unreadable += part.unreadable
        self.problems = [*self.problems, *part.problems][:_PROBLEMS]
        self.unreadable_rows += [(row, lines) for row, lines in part.unreadable_rows]
        for name, count in part.fields.items():
            self.fields[name] = self.fields.get(name, 0) + count

    def problem(self, message: str, row: int, lines: int = 1) -> None:
        """Count a row that cannot be read, and keep the message."""
        problem = ReadingCounts(
            rows=1, unreadable=1, problems=[message], unreadable_rows=[(row, lines)]
        )
        self.add(problem)


def rows(chunk: Chunk, reading: ReadingCounts, fields: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows of a chunk that contain text; add all rows and problems to `reading`."""
    readers = {"jsonl": _json_lines, "text": _paragraphs, "csv": _table_rows, "tsv": _table_rows}
    if isinstance(chunk.content, bytes):
        records = readers[chunk.file.form](chunk, chunk.content, reading)
    else:
        records = ((number, 1, record) for number, record in enumerate(chunk.records, chunk.first))
    for number, span, record in records:
        texts: list[Text] = []
        marks: list[str] = []
        _collect(record, "", texts, marks, reading.fields)
        if fields:
            texts = [text for text in texts if {text[0], text[0].rpartition(".")[2]} & {*fields}]
        reading.rows += 1
        reading.texts += len(texts)
        if texts:
            yield Row(number, tuple(texts), tuple(marks), span)


_Record = tuple[int, int, Any]
"""The number of a record, the lines that it spans, and its value."""


def _json_lines(chunk: Chunk, block: bytes, reading: ReadingCounts) -> Iterator[_Record]:
    for number, line in enumerate(block.split(b"\n"), start=chunk.first):
        if not line or line.isspace():
            continue
        try:
            record = json.loads(line.decode())
            if not isinstance(record, dict | list | str):
                raise ValueError(f"the line is {describe_value(record)}, expected an object")
        except (ValueError, RecursionError) as error:
            reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            reading.problem(
                f"{chunk.file.path}, line {number}: not a JSON object ({reason}).", number
            )
            continue
        yield number, 1, record


def _paragraphs(chunk: Chunk, block: bytes, _: ReadingCounts) -> Iterator[_Record]:
    """Yield the paragraphs of a block; without blank lines, every line is a text."""
    lines = block.decode("utf-8", "replace").split("\n")
    parted = not all(line.strip() for line in lines[:-1])
    number = chunk.first
    for filled, group in groupby(lines, key=lambda line: bool(line.strip())):
        part = list(group)
        if filled and parted:
            yield number, len(part), "\n".join(part)
        elif filled:
            yield from ((number + at, 1, line) for at, line in enumerate(part))
        number += len(part)


def _table_rows(chunk: Chunk, block: bytes, reading: ReadingCounts) -> Iterator[_Record]:
    lines = block.decode("utf-8", "replace").split("\n")
    table = table_reader([f"{line}\n" for line in lines], chunk.file.form)
    before = 0
    while True:
        number = chunk.first + before
        problem = ""
        try:
            cells = next(table, None)
        except csv.Error as error:
            problem, cells = str(error), []
        if cells is None:
            return
        span, before = table.line_num - before, table.line_num
        if problem:
            reading.problem(f"{chunk.file.path}, line {number}: {problem}.", number, span)
            continue
        if not any(cells) or (number == 1 and tuple(cells) == chunk.header):
            continue
        if chunk.header and len(cells) != len(chunk.header):
            finding = f"{len(cells)} columns, expected {len(chunk.header)}"
            reading.problem(f"{chunk.file.path}, line {number}: {finding}.", number, span)
            continue
        yield number, span, dict(zip(chunk.header, cells, strict=True)) if chunk.header else cells


def _collect(
    value: Any, path: str, texts: list[Text], marks: list[str], seen: dict[str, int]
) -> None:
    """Append the texts of a record to `texts` and its ids and titles to `marks`.

    `seen` counts the texts of every field.
    """
    if isinstance(value, dict):
        for name, part in value.items():
            below, plain = f"{path}.{name}" if path else str(name), str(name).lower()
            if plain in _APART and isinstance(part, str | int):
                seen.setdefault(below, 0)
                marks += [str(part)] if plain not in _SPEAKERS else []
                if plain != "title":
                    continue
            _collect(part, below, texts, marks, seen)
    elif isinstance(value, list):
        for number, part in enumerate(value, start=1):
            _collect(part, path or f"column {number}", texts, marks, seen)
    else:
        path = path or "text"
        filled = isinstance(value, str) and bool(value) and not value.isspace()
        seen[path] = seen.get(path, 0) + filled
        if filled:
            texts.append((path, value))
