"""Indexes on disk: one Arrow file a corpus and analysis, checked, then mapped into memory."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.atomic import atomic_file
from r2med.errors import DamagedError
from r2med.home import shelf
from r2med.retrieve.bm25.analysis.byte_words import ByteWords
from r2med.retrieve.bm25.index import Index

_FORMAT = 1
_META = b"r2med.index"


def index_path(corpus_hash: str, analysis: str) -> Path:
    """Where the index of this corpus under this analysis is kept."""
    return shelf("indexes") / "bm25" / analysis / f"{corpus_hash}.arrow"


def write_index(index: Index, path: Path) -> None:
    """Keep an index: a column an array, with a checksum each."""
    arrays = _arrays(index)
    about = {
        name: {"type": array.dtype.str, "crc32": zlib.crc32(_bytes(array))}
        for name, array in arrays.items()
    }
    schema = pa.schema(
        [(name, pa.large_binary()) for name in arrays],
        metadata={_META: json.dumps({"format": _FORMAT, "arrays": about})},
    )
    columns = [_one_value(array) for array in arrays.values()]
    with (
        atomic_file(path) as draft,
        pa.OSFile(str(draft), "wb") as sink,
        pa.ipc.new_file(sink, schema) as writer,
    ):
        writer.write_batch(pa.record_batch(columns, schema=schema))


def read_index(path: Path) -> Index:
    """Map a kept index into memory; DamagedError where it is not what was written."""
    try:
        table = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
        meta = json.loads(table.schema.metadata[_META])
        if meta["format"] != _FORMAT:
            raise ValueError(f"format {meta['format']}")
        arrays = {name: _array(table.column(name), about) for name, about in meta["arrays"].items()}
        words = ByteWords(arrays.pop("words"), arrays.pop("word_offsets"))
        return Index(words=words, **arrays)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as problem:
        raise DamagedError(f"{path}: the stored index cannot be used ({problem}).") from problem


def _arrays(index: Index) -> dict[str, NDArray[Any]]:
    return {
        "words": index.words.data,
        "word_offsets": index.words.offsets,
        "keys": index.keys,
        "offsets": index.offsets,
        "rows": index.rows,
        "counts": index.counts,
        "lengths": index.lengths,
    }


def _bytes(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).view(np.uint8).data


def _one_value(array: NDArray[Any]) -> pa.LargeBinaryArray:
    data = pa.py_buffer(_bytes(array))
    offsets = pa.py_buffer(np.array([0, data.size], dtype=np.int64))
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, data])


def _array(column: pa.LargeBinaryArray, about: dict[str, Any]) -> NDArray[Any]:
    data = column[0].as_buffer()
    if zlib.crc32(data) != about["crc32"]:
        raise ValueError("checksum differs")
    return np.frombuffer(data, dtype=np.dtype(about["type"]))
