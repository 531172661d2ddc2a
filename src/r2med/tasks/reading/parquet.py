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
from r2med.tasks.reading.fields import (
    LARGEST_SCORE,
    NUMBER_WORDS,
    Complain,
    Field,
    Rows,
    Where,
    stop,
)
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
        fields = _spelling(names, shapes)
        table = file.read(columns=[field.name for field in fields if field.name in names])
    kept = np.ones(len(table), dtype=bool)
    columns: dict[str, pa.Array] = {}
    for field in fields:
        try:
            columns[field.column], wrong = _column(table, field, path, names)
        except DataError as error:
            complain(error, Where(path), None)
            columns[field.column], wrong = pa.nulls(len(table), field.type), []
            kept[:] = False
        for row, problem in wrong:
            where = Where(path, row + 1, "row")
            known = columns[fields[0].column][row].as_py() if field is not fields[0] else None
            complain(DataError(f'{where}: column "{field.name}" {problem}.'), where, known)
            kept[row] = False
    if not kept.all():
        columns = {name: column.filter(pa.array(kept)) for name, column in columns.items()}
    return columns, np.flatnonzero(kept) + 1


def _spelling(names: Sequence[str], shapes: Sequence[Sequence[Field]]) -> Sequence[Field]:
    """The shape with most of its fields in the file."""
    return max(shapes, key=lambda fields: sum(field.name in names for field in fields))


#: Rows that are wrong, each with what is wrong about it.
_Wrong = list[tuple[int, str]]


def _column(
    table: pa.Table, field: Field, path: Path, names: Sequence[str]
) -> tuple[pa.Array, _Wrong]:
    """The values of a field; a column that cannot be read at all is an error."""
    if field.name not in names:
        if field.kind in ("id", "text"):
            have = ", ".join(f'"{name}"' for name in names)
            raise DataError(f'{path}: column "{field.name}" is missing (the file has {have}).')
        absent = pa.nulls(len(table), field.type)
        return (pc.fill_null(absent, 1) if field.kind == "score" else absent), []
    column = table[field.name]
    if field.kind == "score":
        return _scores(_numbers(column, field, path))
    if field.kind == "number":
        numbers = _numbers(column, field, path)
        return numbers, _all(pc.is_null(numbers), "is null")
    texts = _texts(column, field, path)
    if field.kind == "note":
        return pc.if_else(pc.equal(texts, ""), None, texts), []
    empty = _all(pc.equal(texts, ""), "is empty") if field.kind == "id" else []
    return texts, sorted([*_all(pc.is_null(texts), "is null"), *empty])


def _all(wrong: pa.Array, problem: str) -> _Wrong:
    rows = np.flatnonzero(pc.fill_null(wrong, False).to_numpy(zero_copy_only=False))
    return [(row, problem) for row in rows.tolist()]


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


def _scores(numbers: pa.Array) -> tuple[pa.Array, _Wrong]:
    scores = pc.fill_null(numbers, 1.0).to_numpy()
    whole = (np.abs(scores) <= LARGEST_SCORE) & (scores == np.floor(scores))
    wrong = [
        (row, f"is {scores[row]:g}, expected {NUMBER_WORDS}")
        for row in np.flatnonzero(~whole).tolist()
    ]
    return pa.array(np.where(whole, scores, 0).astype(np.int32)), wrong
