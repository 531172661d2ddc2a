"""JSON lines read one by one: slower, but it names the line and field of whatever is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from r2med.errors import DataError
from r2med.tasks.reading.fields import LARGEST_SCORE, NUMBER_WORDS, Field, Rows, record_hint
from r2med.tasks.reading.lines import lines

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_exactly(path: Path, fields: Sequence[Field]) -> Rows:
    """The same columns as the fast way, or the error of the first line that is wrong."""
    values: dict[str, list[str | int | None]] = {field.column: [] for field in fields}
    numbers: list[int] = []
    repaired = 0
    for number, line in lines(path):
        where = f"{path}, line {number}"
        record = json_object(line, where, record_hint(tuple(fields)))
        numbers.append(number)
        for field in fields:
            value = _value(record, field, where, fields)
            if isinstance(value, str) and _LONE_SURROGATE.search(value):
                value = _without_surrogates(value, field, where)
                repaired += 1
            values[field.column].append(value)
    columns = {field.column: pa.array(values[field.column], _type(field)) for field in fields}
    return Rows(columns, lambda row: f"{path}, line {numbers[row]}", repaired)


def decoded(line: bytes, where: str) -> str:
    """The line as text; an error names the first byte that is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = line[error.start]
        raise DataError(
            f"{where}: byte {error.start + 1} of the line (0x{byte:02x}) is not UTF-8.\n"
            f"{_encoding_advice(line)}"
        ) from None


def json_object(line: bytes, where: str, hint: str) -> dict[str, object]:
    """The object that a line is; `hint` says in an error how a line should look."""
    text = decoded(line, where)
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(_broken(error, line, where, hint)) from None
    except RecursionError:
        raise DataError(f"{where}: not readable as JSON (nested too deeply).") from None
    except ValueError:
        raise DataError(f"{where}: not readable as JSON (a number is too long).") from None
    if not isinstance(record, dict):
        raise DataError(f"{where}: the line is {described(record)}, expected an object.\n{hint}")
    return record


def described(value: object) -> str:
    """What a JSON value is, in the words of an error."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}" if len(str(value)) < 30 else "a very long number"
    if isinstance(value, str):
        return f"the string {json.dumps(value)}" if len(value) < 30 else "a string"
    return "a list" if isinstance(value, list) else "an object"


def whole_number(value: float) -> int | None:
    """The score as a judgement can have it, or None."""
    fits = abs(value) <= LARGEST_SCORE and value == int(value)
    return int(value) if fits else None


def _broken(error: json.JSONDecodeError, line: bytes, where: str, hint: str) -> str:
    if b"\0" in line:
        return f"{where}: the line holds NUL bytes.\n{_encoding_advice(_UTF16_MARKS[0])}"
    reason = error.msg[:1].lower() + error.msg[1:]
    return f"{where}: not valid JSON ({reason}, column {error.colno}).\n{hint}"


def _encoding_advice(line: bytes) -> str:
    if line.startswith(_UTF16_MARKS):
        return "The file looks like UTF-16; save it as UTF-8."
    return "Save the file as UTF-8 (it may be Latin-1 or Windows-1252)."


def _value(
    record: dict[str, object], field: Field, where: str, fields: Sequence[Field]
) -> str | int | None:
    value = record.get(field.name)
    if field.kind == "note":
        return _note(value)
    if field.kind == "score" and value is None:
        return 1
    if field.name not in record:
        have = ", ".join(f'"{name}"' for name in record) or "no fields"
        problem = f"is missing (the line has {have})"
    elif field.kind == "score":
        score = whole_number(value) if _is_number(value) else None  # type: ignore[arg-type]
        if score is not None:
            return score
        problem = f"is {described(value)}, expected {NUMBER_WORDS}"
    elif isinstance(value, str) and (value or field.kind == "text"):
        return value
    elif field.kind == "id":
        if type(value) is int:
            return str(value)
        problem = "is empty" if value == "" else f"is {described(value)}"
        problem += ", expected a string or an integer"
    else:
        problem = f"is {described(value)}, expected a string"
    raise DataError(f'{where}: field "{field.name}" {problem}.\n{record_hint(tuple(fields))}')


def _note(value: object) -> str | None:
    """Annotations are kept whatever they are, since nothing is computed from them."""
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _without_surrogates(value: str, field: Field, where: str) -> str:
    if field.kind == "id":
        raise DataError(
            f'{where}: field "{field.name}" holds half a surrogate pair, '
            "which no other file could refer to."
        )
    return _LONE_SURROGATE.sub("\ufffd", value)


def _type(field: Field) -> pa.DataType:
    return pa.int32() if field.kind == "score" else pa.large_string()
