"""Read JSON lines as columns: correct files with Arrow's parser, other files line by line.

Reading line by line is slower, but names the line and field of every problem.
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
    Field,
    Location,
    ReportProblem,
    Rows,
    check_values,
    raise_problem,
    record_hint,
)
from r2med.tasks.reading.lines import blocks, lines
from r2med.tasks.reading.text_column import TextColumn

_PARSE_BYTES = 1 << 20
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_EXPECTED_VALUES = {
    "id": "a string or an integer",
    "text": "a string",
    "score": NUMBER_WORDS,
    "number": NUMBER_WORDS,
}


def read_jsonl(path: Path, fields: Sequence[Field], report: ReportProblem = raise_problem) -> Rows:
    """Read the fields of every line as columns; an error names file, line and field.

    If Arrow's parser fails or a value looks wrong, every line is read again with Python's parser,
    and that result is used.
    """
    try:
        return Rows(_parse_with_arrow(path, fields), _locate_rows(path))
    except pa.ArrowInvalid:
        return read_line_by_line(path, fields, report)


def _parse_with_arrow(path: Path, fields: Sequence[Field]) -> dict[str, pa.Array]:
    texts = {field.name: TextColumn() for field in fields if field.type in ("id", "text")}
    chunks: dict[str, list[pa.Array]] = {
        field.name: [] for field in fields if field.name not in texts
    }
    options = None
    for block in blocks(path):
        if b"\0" in block:
            raise pa.ArrowInvalid("NUL bytes")
        options = options or _parse_options(block, fields)
        is_large = len(block) > _PARSE_BYTES  # a thread that outlives a short command aborts it
        table = pj.read_json(
            pa.BufferReader(block),
            read_options=pj.ReadOptions(use_threads=is_large, block_size=_PARSE_BYTES),
            parse_options=options,
        )
        for name, column in texts.items():
            for chunk in table[name].chunks:
                column.append(_check_strings(chunk))
        for name, parts in chunks.items():
            parts += table[name].chunks
    if options is None:
        raise pa.ArrowInvalid("an empty file")
    columns = {}
    for field in fields:
        if field.name in texts:
            values = texts.pop(field.name).finish()
        else:
            values = pa.concat_arrays(chunks.pop(field.name))
            values.validate(full=True)
        columns[field.column], problems = check_values(values, field)
        if problems:
            raise pa.ArrowInvalid("a value is not as it should be")
    return columns


def _check_strings(chunk: pa.Array) -> pa.LargeStringArray:
    """Return the chunk as strings, which must be valid UTF-8 and not null."""
    if chunk.null_count:
        raise pa.ArrowInvalid("a value is null")
    chunk.validate(full=True)
    return chunk.cast(pa.large_string())


def _parse_options(block: bytes, fields: Sequence[Field]) -> pj.ParseOptions:
    """Return options for Arrow's parser with the types in the first line; ids may be numbers."""
    try:
        first = json.loads(block.lstrip().partition(b"\n")[0])
        integer_fields = {name for name, value in first.items() if type(value) is int}
    except (ValueError, RecursionError, AttributeError):
        raise pa.ArrowInvalid("the first line is not an object") from None
    schema = []
    for field in fields:
        arrow_type = pa.float64() if field.type == "score" else pa.large_string()
        if field.type == "id" and field.name in integer_fields:
            arrow_type = pa.int64()
        schema.append((field.name, arrow_type))
    return pj.ParseOptions(explicit_schema=pa.schema(schema), unexpected_field_behavior="ignore")


def _locate_rows(path: Path) -> Callable[[int], Location]:
    """Return a function that finds the line of a row.

    If objects share or span lines, it may return the number of the row instead.
    """

    @cache
    def line_numbers() -> list[int]:
        return [number for number, line in lines(path) if line.lstrip().startswith(b"{")]

    def locate(row: int) -> Location:
        if row < len(line_numbers()):
            return Location(path, line_numbers()[row])
        return Location(path, row + 1, "row")

    return locate


def read_line_by_line(
    path: Path, fields: Sequence[Field], report: ReportProblem = raise_problem
) -> Rows:
    """Read the same columns as `read_jsonl`, but slower; problems are reported with their line."""
    return read_lines(path, fields, parse_object, record_hint(fields), report)


def read_lines(
    path: Path,
    fields: Sequence[Field],
    parse: Callable[[bytes, str, str], dict[str, object]],
    hint: str,
    report: ReportProblem,
    *,
    skipped: int = 0,
) -> Rows:
    """Read fields as columns from lines that `parse` converts to records.

    The first `skipped` lines are left out. `parse` is called with the line, its location, and
    `hint`, which describes a correct line.
    """
    rows: list[list[str | int | None]] = []
    line_numbers: list[int] = []
    repaired = 0
    for number, line in islice(lines(path), skipped, None):
        location = Location(path, number)
        try:
            record = parse(line, str(location), hint)
        except DataError as error:
            report(error, location, None)
            continue
        row: list[str | int | None] = []
        for field in fields:
            try:
                value = _field_value(record, field, str(location), hint)
                if isinstance(value, str) and _LONE_SURROGATE.search(value):
                    if field.type == "id":
                        raise DataError(
                            f'{location}: field "{field.name}" contains half a surrogate pair, '
                            "which no other file could refer to."
                        )
                    value = _LONE_SURROGATE.sub("\ufffd", value)
                    repaired += 1
                row.append(value)
            except DataError as error:
                report(error, location, record.get(fields[0].name))
        if len(row) == len(fields):
            rows.append(row)
            line_numbers.append(number)
    columns = {
        field.column: pa.array([row[index] for row in rows], field.arrow_type)
        for index, field in enumerate(fields)
    }
    return Rows(columns, lambda row: Location(path, line_numbers[row]), repaired)


def write_jsonl(path: Path, records: Iterable[Mapping[str, object]]) -> int:
    """Write a file of JSON lines and create its parent folders; return the number of lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            count += 1
    return count


def decode_line(line: bytes, location: str) -> str:
    """Return a line as text; an error names the first byte that is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte {error.start + 1} of the line (0x{line[error.start]:02x})"
        raise DataError(f"{location}: {byte} is not UTF-8.\nSave the file as UTF-8.") from None


def parse_object(line: bytes, location: str, hint: str) -> dict[str, object]:
    """Return the JSON object on a line; `hint` describes a correct line in errors."""
    text = decode_line(line, location)
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg}, column {error.colno}"
        raise DataError(f"{location}: not valid JSON ({reason}).\n{hint}") from None
    if not isinstance(record, dict):
        description = describe_value(record)
        raise DataError(f"{location}: the line is {description}, expected an object.\n{hint}")
    return record


def describe_value(value: object) -> str:
    """Describe a JSON value in errors: its type, and the value if it is short."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    type_name = "string" if isinstance(value, str) else "number"
    text = json.dumps(value) if isinstance(value, str) else str(value)
    return f"the {type_name} {text}" if len(text) < 30 else f"a long {type_name}"


def whole_number(value: object) -> int | None:
    """Return the value as an int, for the score of a judgement; None if it is not whole."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if abs(value) <= LARGEST_SCORE and value == int(value) else None


def _field_value(
    record: dict[str, object], field: Field, location: str, hint: str
) -> str | int | None:
    """Return the value of a field in a record; DataError if the value has a wrong type."""
    value = record.get(field.name)
    if field.type == "note":
        return _note_text(value)
    if field.type == "score":
        score = 1 if value is None else whole_number(value)
        if score is not None:
            return score
    elif isinstance(value, str) and (value or field.type == "text"):
        return value
    elif field.type == "id" and type(value) is int:
        return str(value)
    if field.name not in record:
        names = ", ".join(f'"{name}"' for name in record) or "no fields"
        problem = f"is missing (the line has {names})"
    else:
        description = "empty" if value == "" else describe_value(value)
        problem = f"is {description}, expected {_EXPECTED_VALUES[field.type]}"
    raise DataError(f'{location}: field "{field.name}" {problem}.\n{hint}')


def _note_text(value: object) -> str | None:
    """Return an annotation as text; any JSON value is valid, since nothing is computed from it."""
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value, ensure_ascii=False)
