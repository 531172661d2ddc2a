"""Parquet shards as columns: the form in which hub datasets are handed out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from r2med.errors import DataError
from r2med.tasks.reading.fields import Field, Rows, Where, checked
from r2med.tasks.reading.lines import arrow_errors


def read_parquet(
    shards: Sequence[Path], *shapes: Sequence[Field], content: bytes | None = None
) -> Rows:
    """The fields of every row, in shard order; `shapes` are the spellings that are tried.

    `content` are the bytes of a single shard, where they were read before.
    """
    read = [_shard(path, shapes, content) for path in shards]
    starts = [0, *accumulate(len(next(iter(columns.values()))) for columns in read)]

    def where(row: int) -> Where:
        shard = bisect_right(starts, row) - 1
        return Where(shards[shard], row - starts[shard] + 1, "row")

    return Rows({n: pa.concat_arrays([columns[n] for columns in read]) for n in read[0]}, where)


def _shard(
    path: Path, shapes: Sequence[Sequence[Field]], content: bytes | None
) -> dict[str, pa.Array]:
    source = path if content is None else pa.BufferReader(content)
    with arrow_errors(path), pq.ParquetFile(source) as file:
        names = file.schema_arrow.names
        fields = max(shapes, key=lambda shape: sum(field.name in names for field in shape))
        wanted = [field.name for field in fields if field.name in names]
        # A thread of Arrow's that still holds bytes of Python's aborts the process when it ends.
        table = file.read(columns=wanted, use_threads=content is None)
    for field in fields:
        if field.name not in names and field.kind in ("id", "text"):
            have = ", ".join(f'"{name}"' for name in names)
            raise DataError(f'{path}: column "{field.name}" is missing (the file has {have}).')
    return {field.column: _column(table, field, path) for field in fields}


def _column(table: pa.Table, field: Field, path: Path) -> pa.Array:
    """The values of a field; a column of another type and a wrong value are errors."""
    if field.name not in table.column_names:
        absent = pa.nulls(len(table), field.type)
        return pc.fill_null(absent, 1) if field.kind == "score" else absent
    column, numeric = table[field.name], field.kind in ("score", "number")
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(fits(kind) for fits in _FITTING[field.kind]):
        if field.kind == "note":
            return pa.nulls(len(table), field.type)
        expected = "numbers" if numeric else "strings"
        expected += " or integers" if field.kind == "id" else ""
        raise DataError(f'{path}: column "{field.name}" holds {kind}, expected {expected}.')
    target = pa.float64() if numeric else pa.large_string()
    values = column.cast(kind).cast(target, safe=False).combine_chunks()
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DataError(f'{path}: column "{field.name}" holds text that is not UTF-8.') from error
    checked_values, problem = checked(values, field)
    if problem:
        raise DataError(f"{path}, {problem}")
    return checked_values


_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_NUMBERS = (pa.types.is_integer, pa.types.is_floating)
#: The types that a column of each kind may have.
_FITTING = {
    "id": (*_TEXT, pa.types.is_integer),
    "text": _TEXT,
    "note": (*_TEXT, pa.types.is_integer, pa.types.is_null),
    "score": _NUMBERS,
    "number": _NUMBERS,
}
