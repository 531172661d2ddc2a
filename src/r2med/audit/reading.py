"""The texts of training rows, and what each of them is there.

Every text of a row is looked at, however deep it is nested; the name of its field says whether it
is a query, a positive or a negative. So no field has to be declared, and rows of different shapes
may stand in one file. `fields` (the option `--field`) narrows it to some.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

from r2med.audit.files import Piece, table_reader
from r2med.errors import UsageError
from r2med.tasks.reading.jsonl import described

RowRole = Literal["query", "positive", "negative", "text"]
#: Names of fields, in lower case, that say what a text is; others take the role around them.
_NAMES: dict[RowRole, str] = {
    "query": "query queries question anchor prompt instruction input sentence1 q",
    "positive": "positive positives pos positive_passages positive_ctxs answer answers output "
    "response completion sentence2 chosen",
    "negative": "negative negatives neg negative_passages negative_ctxs hard_negative "
    "hard_negatives hard_negative_ctxs rejected",
}
_ROLE_OF = {name: role for role, names in _NAMES.items() for name in names.split()}
_BY_PLACE: tuple[RowRole, ...] = ("query", "positive", "negative")
#: Fields that say where a text comes from.
_MARKS = {"id", "_id", "docid", "doc_id", "pid", "qid", "query_id", "corpus_id", "pmid", "pmcid"}
_MARKS |= {"source", "url", "title"}
_SPEAKERS = {"user": "query", "human": "query", "system": "text"}
_PROBLEMS = 3


@dataclass(frozen=True)
class Text:
    """A text of a row: the path of its field and what it is there."""

    field: str
    role: RowRole
    text: str


@dataclass(frozen=True)
class Row:
    """The texts of one row, and the ids and titles that say where they come from."""

    number: int
    texts: tuple[Text, ...]
    marks: tuple[str, ...] = ()
    lines: int = 1
    """Lines that it spans in a file of lines."""


@dataclass
class Reading:
    """What was met while reading: counts, and the first problems in words."""

    rows: int = 0
    texts: int = 0
    unreadable: int = 0
    textless: int = 0
    problems: list[str] = field(default_factory=list)
    fields: dict[str, int] = field(default_factory=dict)
    """Every field met, with its number of texts (0 where it holds none)."""

    def add(self, other: Reading) -> None:
        """Count what another part met."""
        self.rows += other.rows
        self.texts += other.texts
        self.unreadable += other.unreadable
        self.textless += other.textless
        self.problems = [*self.problems, *other.problems][:_PROBLEMS]
        for name, count in other.fields.items():
            self.fields[name] = self.fields.get(name, 0) + count

    def problem(self, message: str) -> None:
        """Count a row that cannot be read."""
        self.rows += 1
        self.unreadable += 1
        if len(self.problems) < _PROBLEMS:
            self.problems.append(message)


def rows(piece: Piece, reading: Reading, fields: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of a piece that hold text; all else is counted in `reading`."""
    wanted = _wanted(fields)
    readers = {"jsonl": _json_lines, "text": _paragraphs, "csv": _table_rows, "tsv": _table_rows}
    if isinstance(piece.content, bytes):
        records = readers[piece.file.form](piece, piece.content, reading)
    else:
        records = ((number, 1, record) for number, record in enumerate(piece.records, piece.first))
    for number, span, record in records:
        reading.rows += 1
        texts: list[Text] = []
        marks: list[str] = []
        _collect(record, "", "text", texts, marks, reading.fields)
        if wanted:
            texts = [chosen for text in texts if (chosen := _chosen(text, wanted))]
        for text in texts:
            reading.fields[text.field] = reading.fields.get(text.field, 0) + 1
        reading.texts += len(texts)
        if texts:
            yield Row(number, tuple(texts), tuple(marks), span)
        else:
            reading.textless += 1


_Record = tuple[int, int, Any]
"""The number of a record, the lines that it spans, and its value."""


def _json_lines(piece: Piece, block: bytes, reading: Reading) -> Iterator[_Record]:
    for number, line in enumerate(block.split(b"\n"), start=piece.first):
        if not line or line.isspace():
            continue
        try:
            record = json.loads(line.decode())
            if not isinstance(record, dict | list | str):
                raise ValueError(f"the line is {described(record)}, expected an object")
        except (ValueError, RecursionError) as error:
            what = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            reading.problem(f"{piece.file.path}, line {number}: not a JSON object ({what}).")
            continue
        yield number, 1, record


def _paragraphs(piece: Piece, block: bytes, _: Reading) -> Iterator[_Record]:
    """Paragraphs where blank lines part them; else every line is a text."""
    lines = block.decode("utf-8", "replace").split("\n")
    parted = not all(line.strip() for line in lines[:-1])
    number = piece.first
    for filled, group in groupby(lines, key=lambda line: bool(line.strip())):
        part = list(group)
        if filled and parted:
            yield number, len(part), "\n".join(part)
        elif filled:
            yield from ((number + at, 1, line) for at, line in enumerate(part))
        number += len(part)


def _table_rows(piece: Piece, block: bytes, reading: Reading) -> Iterator[_Record]:
    lines = block.decode("utf-8", "replace").split("\n")
    table = table_reader([f"{line}\n" for line in lines], piece.file.form)
    before = 0
    while True:
        try:
            cells = next(table, None)
        except csv.Error as error:
            reading.problem(f"{piece.file.path}, line {piece.first + before}: {error}.")
            cells = []
        if cells is None:
            return
        number, span, before = piece.first + before, table.line_num - before, table.line_num
        if not any(cells) or (number == 1 and tuple(cells) == piece.header):
            continue
        if piece.header and len(cells) != len(piece.header):
            reading.problem(
                f"{piece.file.path}, line {number}: {len(cells)} columns, "
                f"expected {len(piece.header)}."
            )
            continue
        yield number, span, dict(zip(piece.header, cells, strict=True)) if piece.header else cells


def _collect(
    value: Any, path: str, role: RowRole, texts: list[Text], marks: list[str], seen: dict[str, int]
) -> None:
    """Every string in a record, with the role that the names on its way give it."""
    if isinstance(value, str):
        if value and not value.isspace():
            texts.append(Text(path or "text", role, value))
    elif isinstance(value, dict):
        speaker = value.get("role", value.get("from"))
        said = "content" if "content" in value else "value"
        for name, part in value.items():
            if isinstance(speaker, str) and said in value and name in ("role", "from"):
                continue
            below = f"{path}.{name}" if path else str(name)
            plain = str(name).lower()
            if plain in _MARKS and isinstance(part, str | int):
                marks.append(str(part))
                seen.setdefault(below, 0)
                if plain != "title":
                    continue
            own: RowRole = _ROLE_OF.get(plain, role)
            if isinstance(speaker, str) and name == said:
                own = _SPEAKERS.get(speaker, "positive")  # type: ignore[assignment]
            _collect(part, below, own, texts, marks, seen)
    elif isinstance(value, list):
        bare = not path and 1 < len(value) <= len(_BY_PLACE)
        for place, part in enumerate(value):
            below = path or f"column {place + 1}"
            _collect(part, below, _BY_PLACE[place] if bare else role, texts, marks, seen)
    else:
        seen.setdefault(path, 0)


def _chosen(text: Text, wanted: Mapping[str, RowRole | None]) -> Text | None:
    for name in (text.field, text.field.rpartition(".")[2]):
        if name in wanted:
            return replace(text, role=wanted[name] or text.role)
    return None


def _wanted(fields: Sequence[str]) -> dict[str, RowRole | None]:
    """Fields by name; `query=prompt` also says what the texts of the field are."""
    wanted: dict[str, RowRole | None] = {}
    for text in fields:
        role, equals, name = text.partition("=")
        if not equals:
            wanted[text] = None
        elif role in (*_BY_PLACE, "text"):
            wanted[name] = role
        else:
            raise UsageError(
                f"--field {text!r}: {role!r} is not a role; "
                "expected query, positive, negative or text."
            )
    return wanted
