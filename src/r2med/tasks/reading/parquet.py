"""Parquet shards as columns: the form in which hub datasets are handed out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from r2med.errors import DataError
from r2med.tasks.reading.fields import Complain, Field, Rows, Where, checked, stop
from r2med.tasks.reading.lines import arrow_errors


def read_parquet(
    shards: Sequence[Path],
    *shapes: Sequence[Field],
    content: bytes | None = None,
    complain: Complain = stop,
) -> Rows:
    """The fields of every row, in shard order; `shapes` are the spellings that are tried.

    `content` are the bytes of a single shard, where they were read before.
    """
    read = [_shard(path, shapes, content, complain) for path in shards]
    starts = [0, *accumulate(len(numbers) for _, numbers in read)]

    def where(row: int) -> Where:
        shard = bisect_right(starts, row) - 1
        return Where(shards[shard], int(read[shard][1][row - starts[shard]]), "row")

    names = list(read[0][0])
    return Rows({n: pa.concat_arrays([columns[n] for columns, _ in read]) for n in names}, where)


def _shard(
    path: Path, shapes: Sequence[Sequence[Field]], content: bytes | None, complain: Complain
) -> tuple[dict[str, pa.Array], NDArray[np.int64]]:
    """The columns of a file without the rows that were complained of, and the others' numbers."""
    source = path if content is None else pa.BufferReader(content)
    with arrow_errors(path), pq.ParquetFile(source) as file:
        names = file.schema_arrow.names
        fields = max(shapes, key=lambda shape: sum(field.name in names for field in shape))
        wanted = [field.name for field in fields if field.name in names]
        # A thread of Arrow's that still holds bytes of Python's aborts the process when it ends.
        table = file.read(columns=wanted, use_threads=content is None)
    kept = np.ones(len(table), dtype=bool)
    columns: dict[str, pa.Array] = {}
    for field in fields:
        try:
            if field.name not in names and field.kind in ("id", "text"):
                have = ", ".join(f'"{name}"' for name in names)
                raise DataError(f'{path}: column "{field.name}" is missing (the file has {have}).')
            columns[field.column], wrong = _column(table, field, path)
        except DataError as error:
            complain(error, Where(path), None)
            columns[field.column], wrong = pa.nulls(len(table), field.type), {}
            kept[:] = False
        for row, problem in sorted(wrong.items()):
            where = Where(path, row + 1, "row")
            known = columns[fields[0].column][row].as_py() if field is not fields[0] else None
            complain(DataError(f'{where}: column "{field.name}" {problem}.'), where, known)
            kept[row] = False
    if not kept.all():
        columns = {name: column.filter(pa.array(kept)) for name, column in columns.items()}
    return columns, np.flatnonzero(kept) + 1


def _column(table: pa.Table, field: Field, path: Path) -> tuple[pa.Array, dict[int, str]]:
    """The values of a field, and what is wrong by row; a column of another type is an error."""
    if field.name not in table.column_names:
        absent = pa.nulls(len(table), field.type)
        return (pc.fill_null(absent, 1) if field.kind == "score" else absent), {}
    column, numeric = table[field.name], field.kind in ("score", "number")
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(fits(kind) for fits in _FITTING[field.kind]):
        if field.kind == "note":
            return pa.nulls(len(table), field.type), {}
        expected = "numbers" if numeric else "strings"
        expected += " or integers" if field.kind == "id" else ""
        raise DataError(f'{path}: column "{field.name}" holds {kind}, expected {expected}.')
    target = pa.float64() if numeric else pa.large_string()
    values = column.cast(kind).cast(target, safe=False).combine_chunks()
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DataError(f'{path}: column "{field.name}" holds text that is not UTF-8.') from error
    return checked(values, field)


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
