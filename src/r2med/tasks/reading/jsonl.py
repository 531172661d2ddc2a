"""JSON lines as columns: Arrow's parser for files that are as they should be, else line by line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from r2med.tasks.reading.exact import read_exactly
from r2med.tasks.reading.fields import LARGEST_SCORE, Field, Rows
from r2med.tasks.reading.lines import blocks, lines
from r2med.tasks.reading.text_column import TextColumn

_PARSE_BYTES = 1 << 20
_USUAL_GZIP_RATIO = 4


class _OddError(Exception):
    """Something the fast way cannot vouch for; the exact way reads it or names what is wrong."""


def read_jsonl(path: Path, fields: Sequence[Field]) -> Rows:
    """The fields of every line, as columns; an error names file, line and field.

    Nothing is built per line unless Arrow's parser stumbles or a value looks wrong: then every
    line is read again with the standard library, which decides.
    """
    try:
        return Rows(_fast(path, fields), lambda row: _place(path, row))
    except (pa.ArrowInvalid, _OddError):
        return read_exactly(path, fields)


def _fast(path: Path, fields: Sequence[Field]) -> dict[str, pa.Array]:
    parts = _Parts(fields, capacity=_text_bytes(path))
    options = None
    for block in blocks(path):
        if b"\0" in block:
            raise _OddError
        options = options or _parse_options(block, fields)
        parts.append(_parse(block, options))
    return parts.finish()


def _text_bytes(path: Path) -> int:
    """Room for all texts; untouched room costs nothing, and too little is mended by growing."""
    size = path.stat().st_size
    return size * _USUAL_GZIP_RATIO if path.suffix == ".gz" else size


def _parse_options(block: bytes, fields: Sequence[Field]) -> pj.ParseOptions:
    first = _first_record(block)
    schema = [(field.name, _arrow_type(field, first.get(field.name))) for field in fields]
    return pj.ParseOptions(explicit_schema=pa.schema(schema), unexpected_field_behavior="ignore")


def _first_record(block: bytes) -> dict[str, object]:
    line = block.lstrip().partition(b"\n")[0]
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise _OddError from None
    if not isinstance(record, dict):
        raise _OddError
    return record


def _arrow_type(field: Field, first_value: object) -> pa.DataType:
    if field.kind == "score":
        return pa.float64()
    return pa.int64() if field.kind == "id" and type(first_value) is int else pa.large_string()


def _parse(block: bytes, options: pj.ParseOptions) -> pa.Table:
    """One block as a table; the system's allocator reuses the memory of the block before."""
    return pj.read_json(
        pa.BufferReader(block),
        read_options=pj.ReadOptions(use_threads=True, block_size=_PARSE_BYTES),
        parse_options=options,
        memory_pool=pa.system_memory_pool(),
    )


class _Parts:
    """The columns under construction."""

    def __init__(self, fields: Sequence[Field], capacity: int) -> None:
        self._fields = fields
        self._texts = {
            field.column: TextColumn(capacity if field.kind == "text" else capacity // 16)
            for field in fields
            if field.kind in ("id", "text")
        }
        self._chunks: dict[str, list[pa.Array]] = {
            field.column: [] for field in fields if field.column not in self._texts
        }

    def append(self, table: pa.Table) -> None:
        for field in self._fields:
            column = table[field.name]
            if field.column in self._chunks:
                self._chunks[field.column].extend(column.chunks)
                continue
            if column.null_count:
                raise _OddError
            for chunk in column.chunks:
                self._texts[field.column].append(chunk.cast(pa.large_string()))

    def finish(self) -> dict[str, pa.Array]:
        return {field.column: self._finished(field) for field in self._fields}

    def _finished(self, field: Field) -> pa.Array:
        if field.kind == "score":
            return _scores(pa.chunked_array(self._chunks[field.column], pa.float64()))
        if field.kind == "note":
            return _notes(pa.chunked_array(self._chunks[field.column], pa.large_string()))
        column = self._texts[field.column].finish()
        if field.kind == "id" and pc.min(pc.binary_length(column)).as_py() == 0:
            raise _OddError
        return column


def _scores(values: pa.ChunkedArray) -> pa.Array:
    scores = pc.fill_null(values, 1.0).to_numpy()
    if not np.all((np.abs(scores) <= LARGEST_SCORE) & (scores == np.floor(scores))):
        raise _OddError
    return pa.array(scores.astype(np.int32))


def _notes(values: pa.ChunkedArray) -> pa.Array:
    notes = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    notes.validate(full=True)
    return pc.if_else(pc.equal(notes, ""), None, notes)


def _place(path: Path, row: int) -> str:
    """The line of a row; where objects share or span lines, only the row is sure."""
    numbers = [number for number, line in lines(path) if line.lstrip().startswith(b"{")]
    return f"{path}, line {numbers[row]}" if row < len(numbers) else f"{path}, row {row + 1}"
