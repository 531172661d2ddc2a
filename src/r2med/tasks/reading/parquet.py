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

from r2med.errors import DataError
from r2med.tasks.reading.fields import LARGEST_SCORE, NUMBER_WORDS, Field, Rows
from r2med.tasks.reading.lines import arrow_errors


def read_parquet(
    shards: Sequence[Path], *shapes: Sequence[Field], content: bytes | None = None
) -> Rows:
    """The fields of every row, in shard order; `shapes` are the spellings that are tried.

    `content` are the bytes of a single shard, where they were read before.
    """
    read = [_shard(path, shapes, content) for path in shards]
    starts = [0, *accumulate(len(next(iter(columns.values()))) for columns in read)]

    def place(row: int) -> str:
        shard = bisect_right(starts, row) - 1
        return f"{shards[shard]}, row {row - starts[shard] + 1}"

    columns = {name: pa.concat_arrays([part[name] for part in read]) for name in read[0]}
    return Rows(columns, place)


def _shard(
    path: Path, shapes: Sequence[Sequence[Field]], content: bytes | None
) -> dict[str, pa.Array]:
    source = path if content is None else pa.BufferReader(content)
    with arrow_errors(path), pq.ParquetFile(source) as file:
        names = file.schema_arrow.names
        fields = _spelling(names, shapes)
        table = file.read(columns=[field.name for field in fields if field.name in names])
    return {field.column: _column(table, field, path, names) for field in fields}


def _spelling(names: Sequence[str], shapes: Sequence[Sequence[Field]]) -> Sequence[Field]:
    """The shape with most of its fields in the file."""
    return max(shapes, key=lambda fields: sum(field.name in names for field in fields))


def _column(table: pa.Table, field: Field, path: Path, names: Sequence[str]) -> pa.Array:
    if field.name not in names:
        return _absent(table, field, path, names)
    column = table[field.name]
    if field.kind == "score":
        return _scores(column, field, path)
    if field.kind == "number":
        numbers = _numbers(column, field, path)
        _check(pc.is_null(numbers), "is null", field, path)
        return numbers
    texts = _texts(column, field, path)
    if field.kind == "note":
        return pc.if_else(pc.equal(texts, ""), None, texts)
    _check(pc.is_null(texts), "is null", field, path)
    if field.kind == "id":
        _check(pc.equal(texts, ""), "is empty", field, path)
    return texts


def _absent(table: pa.Table, field: Field, path: Path, names: Sequence[str]) -> pa.Array:
    if field.kind == "score":
        return pa.array(np.ones(len(table), dtype=np.int32))
    if field.kind == "note":
        return pa.nulls(len(table), pa.large_string())
    if field.kind == "number":
        return pa.nulls(len(table), pa.float64())
    have = ", ".join(f'"{name}"' for name in names)
    raise DataError(f'{path}: column "{field.name}" is missing (the file has {have}).')


def _texts(column: pa.ChunkedArray, field: Field, path: Path) -> pa.Array:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    numeric = field.kind in ("id", "note") and pa.types.is_integer(kind)
    empty = pa.types.is_null(kind) and field.kind == "note"
    if not (numeric or empty or _is_text(kind)):
        if field.kind == "note":
            return pa.nulls(len(column), pa.large_string())
        expected = "strings or integers" if field.kind == "id" else "strings"
        raise DataError(f'{path}: column "{field.name}" holds {kind}, expected {expected}.')
    chunks = [chunk.cast(kind).cast(pa.large_string()) for chunk in column.chunks]
    texts = pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DataError(f'{path}: column "{field.name}" holds text that is not UTF-8.') from error
    return texts


def _is_text(kind: pa.DataType) -> bool:
    view = getattr(pa.types, "is_string_view", lambda _: False)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or view(kind))


def _numbers(column: pa.ChunkedArray, field: Field, path: Path) -> pa.Array:
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise DataError(f'{path}: column "{field.name}" holds {column.type}, expected numbers.')
    chunks = [chunk.cast(pa.float64(), safe=False) for chunk in column.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.float64())


def _scores(column: pa.ChunkedArray, field: Field, path: Path) -> pa.Array:
    scores = pc.fill_null(_numbers(column, field, path), 1.0).to_numpy()
    wrong = ~((np.abs(scores) <= LARGEST_SCORE) & (scores == np.floor(scores)))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f'{path}, row {row + 1}: column "{field.name}" is {scores[row]:g}, '
            f"expected {NUMBER_WORDS}."
        )
    return pa.array(scores.astype(np.int32))


def _check(wrong: pa.Array, problem: str, field: Field, path: Path) -> None:
    row = wrong.index(True).as_py()
    if row >= 0:
        raise DataError(f'{path}, row {row + 1}: column "{field.name}" {problem}.')
