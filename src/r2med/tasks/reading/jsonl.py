"""JSON lines as columns: Arrow's parser for files that are as they should be, else line by line.

Line by line is slower, but it names the line and field of whatever is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj

from r2med.errors import DataError
from r2med.tasks.reading.fields import (
    LARGEST_SCORE,
    NUMBER_WORDS,
    Complain,
    Field,
    Rows,
    Where,
    checked,
    record_hint,
    stop,
)
from r2med.tasks.reading.lines import blocks, lines

_PARSE_BYTES = 1 << 20
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def read_jsonl(path: Path, fields: Sequence[Field], complain: Complain = stop) -> Rows:
    """The fields of every line, as columns; an error names file, line and field.

    Nothing is built per line unless Arrow's parser stumbles or a value looks wrong: then every
    line is read again with the standard library, which decides.
    """
    try:
        return Rows(_parsed(path, fields), _lines_of_rows(path))
    except pa.ArrowInvalid:
        return read_exactly(path, fields, complain)


def _parsed(path: Path, fields: Sequence[Field]) -> dict[str, pa.Array]:
    chunks: dict[str, list[pa.Array]] = {field.name: [] for field in fields}
    options = None
    for block in blocks(path):
        if b"\0" in block:
            raise pa.ArrowInvalid("NUL bytes")
        options = options or _parse_options(block, fields)
        large = len(block) > _PARSE_BYTES  # a thread that outlives a short command aborts it
        table = pj.read_json(
            pa.BufferReader(block),
            read_options=pj.ReadOptions(use_threads=large, block_size=_PARSE_BYTES),
            parse_options=options,
        )
        for name, parts in chunks.items():
            parts += table[name].chunks
    if options is None:
        raise pa.ArrowInvalid("an empty file")
    columns = {}
    for field in fields:
        column = pa.concat_arrays(chunks.pop(field.name))
        column.validate(full=True)
        values = column if field.kind == "score" else column.cast(pa.large_string())
        columns[field.column], wrong = checked(values, field)
        if wrong:
            raise pa.ArrowInvalid("a value is not as it should be")
    return columns


def _parse_options(block: bytes, fields: Sequence[Field]) -> pj.ParseOptions:
    """The types to expect, after the first line; ids may be numbers."""
    try:
        first = json.loads(block.lstrip().partition(b"\n")[0])
        numbers = {name for name, value in first.items() if type(value) is int}
    except (ValueError, RecursionError, AttributeError):
        raise pa.ArrowInvalid("the first line is no object") from None
    kinds = {"score": pa.float64(), "number id": pa.int64()}
    schema = []
    for field in fields:
        kind = "number id" if field.kind == "id" and field.name in numbers else field.kind
        schema.append((field.name, kinds.get(kind, pa.large_string())))
    return pj.ParseOptions(explicit_schema=pa.schema(schema), unexpected_field_behavior="ignore")


def _lines_of_rows(path: Path) -> Callable[[int], Where]:
    """The line of each row; where objects share or span lines, only the row is sure."""

    @cache
    def numbers() -> list[int]:
        return [number for number, line in lines(path) if line.lstrip().startswith(b"{")]

    def where(row: int) -> Where:
        known = row < len(numbers())
        return Where(path, numbers()[row]) if known else Where(path, row + 1, "row")

    return where


def read_exactly(path: Path, fields: Sequence[Field], complain: Complain = stop) -> Rows:
    """The same columns as the fast way; what is wrong is complained of, line by line."""
    return read_lines(path, fields, json_object, record_hint(fields), complain)


def read_lines(
    path: Path,
    fields: Sequence[Field],
    parse: Callable[[bytes, str, str], dict[str, object]],
    hint: str,
    complain: Complain,
    *,
    skipped: int = 0,
) -> Rows:
    """The fields of the record that `parse` makes of each line after the skipped ones.

    It is called with the line, where it stands, and the hint, which says in an error how a line
    should look.
    """
    rows: list[list[str | int | None]] = []
    numbers: list[int] = []
    repaired = 0
    for number, line in islice(lines(path), skipped, None):
        where = Where(path, number)
        try:
            record = parse(line, str(where), hint)
        except DataError as error:
            complain(error, where, None)
            continue
        row: list[str | int | None] = []
        for field in fields:
            try:
                value = _value(record, field, str(where), hint)
                if isinstance(value, str) and _LONE_SURROGATE.search(value):
                    if field.kind == "id":
                        broken = "half a surrogate pair, which no other file could refer to"
                        raise DataError(f'{where}: field "{field.name}" holds {broken}.')
                    value = _LONE_SURROGATE.sub("\ufffd", value)
                    repaired += 1
                row.append(value)
            except DataError as error:
                complain(error, where, record.get(fields[0].name))
        if len(row) == len(fields):
            rows.append(row)
            numbers.append(number)
    columns = {
        field.column: pa.array([row[at] for row in rows], field.type)
        for at, field in enumerate(fields)
    }
    return Rows(columns, lambda row: Where(path, numbers[row]), repaired)


def write_jsonl(path: Path, records: Iterable[Mapping[str, object]]) -> int:
    """Write a file of JSON lines, and the folders above it; returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        texts = (json.dumps(record, ensure_ascii=False) for record in records)
        return sum(1 for text in texts if file.write(f"{text}\n"))


def decoded(line: bytes, where: str) -> str:
    """The line as text; an error names the first byte that is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte {error.start + 1} of the line (0x{line[error.start]:02x})"
        raise DataError(f"{where}: {byte} is not UTF-8.\nSave the file as UTF-8.") from None


def json_object(line: bytes, where: str, hint: str) -> dict[str, object]:
    """The object that a line is; `hint` says in an error how a line should look."""
    text = decoded(line, where)
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        column = f", column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        reason = f"{getattr(error, 'msg', error)}{column}"
        raise DataError(f"{where}: not valid JSON ({reason}).\n{hint}") from None
    if not isinstance(record, dict):
        raise DataError(f"{where}: the line is {described(record)}, expected an object.\n{hint}")
    return record


def described(value: object) -> str:
    """What a JSON value is, in the words of an error."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    kind, text = ("string", json.dumps(value)) if isinstance(value, str) else ("number", str(value))
    return f"the {kind} {text}" if len(text) < 30 else f"a long {kind}"


def whole_number(value: object) -> int | None:
    """The score as a judgement can have it, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if abs(value) <= LARGEST_SCORE and value == int(value) else None


def _value(record: dict[str, object], field: Field, where: str, hint: str) -> str | int | None:
    """The field of a record, or an error that says what it is instead."""
    value, kind = record.get(field.name), field.kind
    if kind == "note":  # kept whatever they are, since nothing is computed from them
        plain = value is None or isinstance(value, str)
        return str(value or "") or None if plain else json.dumps(value, ensure_ascii=False)
    if kind == "score":
        score = 1 if value is None else whole_number(value)
        if score is not None:
            return score
    elif isinstance(value, str) and (value or kind == "text"):
        return value
    elif kind == "id" and type(value) is int:
        return str(value)
    expected = {"id": "a string or an integer", "text": "a string"}.get(kind, NUMBER_WORDS)
    problem = f"is {'empty' if value == '' else described(value)}, expected {expected}"
    if field.name not in record:
        have = ", ".join(f'"{name}"' for name in record) or "no fields"
        problem = f"is missing (the line has {have})"
    raise DataError(f'{where}: field "{field.name}" {problem}.\n{hint}')
