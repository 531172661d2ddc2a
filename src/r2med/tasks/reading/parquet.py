"""Read Parquet shards, the format of hub datasets, as columns."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from r2med.errors import DataError
from r2med.tasks.reading.fields import (
    Field,
    Location,
    ReportProblem,
    Rows,
    check_values,
    raise_problem,
)
from r2med.tasks.reading.lines import (
    HARMLESS_BYTES,
    MAX_RATIO,
    arrow_errors,
    limit,
    refuse_size,
)

#: Bytes that a value takes at least when it is decoded.
_VALUE_BYTES = 8
_TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_NUMBER_TYPES = (pa.types.is_integer, pa.types.is_floating)
#: The Arrow types that the column of each type of field may have.
_ALLOWED_TYPES = {
    "id": (*_TEXT_TYPES, pa.types.is_integer),
    "text": _TEXT_TYPES,
    "note": (*_TEXT_TYPES, pa.types.is_integer, pa.types.is_null),
    "score": _NUMBER_TYPES,
    "number": _NUMBER_TYPES,
}


@dataclass(frozen=True, eq=False)
class _Shard:
    """The columns of a file without the rows that have problems, and the numbers of the rest."""

    columns: dict[str, pa.Array]
    row_numbers: NDArray[np.int64]


def read_parquet(
    shards: Sequence[Path],
    *spellings: Sequence[Field],
    content: bytes | None = None,
    report: ReportProblem = raise_problem,
) -> Rows:
    """Read the fields of every row as columns, in the order of the shards.

    Args:
        shards: The files.
        spellings: Alternative lists of fields; the one that fits the columns best is read.
        content: The bytes of a single shard, if the caller has already read them.
        report: Callback for problems.
    """
    read = [_read_shard(path, spellings, content, report) for path in shards]
    starts = [0, *accumulate(len(shard.row_numbers) for shard in read)]

    def locate(row: int) -> Location:
        index = bisect_right(starts, row) - 1
        return Location(shards[index], int(read[index].row_numbers[row - starts[index]]), "row")

    columns = {
        name: pa.concat_arrays([shard.columns[name] for shard in read]) for name in read[0].columns
    }
    return Rows(columns, locate)


def _read_shard(
    path: Path,
    spellings: Sequence[Sequence[Field]],
    content: bytes | None,
    report: ReportProblem,
) -> _Shard:
    source = path if content is None else pa.BufferReader(content)
    with arrow_errors(path), pq.ParquetFile(source) as file:
        names = file.schema_arrow.names
        fields = max(spellings, key=lambda spelling: sum(field.name in names for field in spelling))
        present = [field.name for field in fields if field.name in names]
        packed = path.stat().st_size if content is None else len(content)
        _check_size(path, file.metadata.num_rows, len(present), packed)
        # An Arrow thread that still holds bytes of Python aborts the process when it ends.
        table = file.read(columns=present, use_threads=content is None)
    is_valid = np.ones(len(table), dtype=bool)
    columns: dict[str, pa.Array] = {}
    for field in fields:
        try:
            if field.name not in names and field.type in ("id", "text"):
                listed = ", ".join(f'"{name}"' for name in names)
                raise DataError(
                    f'{path}: column "{field.name}" is missing (the file has {listed}).'
                )
            columns[field.column], problems = _read_column(table, field, path)
        except DataError as error:
            report(error, Location(path), None)
            columns[field.column], problems = pa.nulls(len(table), field.arrow_type), {}
            is_valid[:] = False
        for row, problem in sorted(problems.items()):
            location = Location(path, row + 1, "row")
            id_column = columns[fields[0].column]
            record_id = None if field is fields[0] else id_column[row].as_py()
            report(DataError(f'{location}: column "{field.name}" {problem}.'), location, record_id)
            is_valid[row] = False
    if not is_valid.all():
        columns = {name: column.filter(pa.array(is_valid)) for name, column in columns.items()}
    return _Shard(columns, np.flatnonzero(is_valid) + 1)


def _check_size(path: Path, rows: int, columns: int, packed: int) -> None:
    """Raise an error for a small file that decodes to very many rows, as equal values can."""
    decoded = rows * columns * _VALUE_BYTES
    ratio = limit(MAX_RATIO)
    if decoded > HARMLESS_BYTES and decoded > ratio * packed:
        raise refuse_size(path, f"its {packed:,} bytes decode to {rows:,} rows", MAX_RATIO)


def _read_column(table: pa.Table, field: Field, path: Path) -> tuple[pa.Array, dict[int, str]]:
    """Read the values of a field, and the problems by row; DataError for a wrong column type."""
    if field.name not in table.column_names:
        absent = pa.nulls(len(table), field.arrow_type)
        return (pc.fill_null(absent, 1) if field.type == "score" else absent), {}
    column = table[field.name]
    value_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_number = field.type in ("score", "number")
    if not any(is_allowed(value_type) for is_allowed in _ALLOWED_TYPES[field.type]):
        if field.type == "note":
            return _json_texts(column), {}
        expected = "numbers" if is_number else "strings"
        expected += " or integers" if field.type == "id" else ""
        raise DataError(f'{path}: column "{field.name}" holds {value_type}, expected {expected}.')
    target = pa.float64() if is_number else pa.large_string()
    values = column.cast(value_type).cast(target, safe=False).combine_chunks()
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DataError(f'{path}: column "{field.name}" holds text that is not UTF-8.') from error
    return check_values(values, field)


def _json_texts(column: pa.ChunkedArray) -> pa.Array:
    """Return lists of texts as JSON texts, the form in JSON lines; other values become null."""
    value_type = column.type
    is_list = pa.types.is_list(value_type) or pa.types.is_large_list(value_type)
    if not is_list or not any(is_text(value_type.value_type) for is_text in _TEXT_TYPES):
        return pa.nulls(len(column), pa.large_string())
    texts = [None if row is None else json.dumps(row) for row in column.to_pylist()]
    return pa.array(texts, pa.large_string())
