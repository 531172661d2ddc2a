"""The inverted index: for each term its documents and counts, in memory and in its file."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.atomic import atomic_file
from r2med.errors import DamagedError
from r2med.home import shelf
from r2med.retrieve.bm25.words import ByteWords, Keys, TokenColumns

Values = TypeVar("Values", bound=np.integer[Any])

_PART_BITS = 14
"""Most documents a part, as a power of two: its pairs stay in the processor's cache."""


@dataclass(frozen=True, eq=False)
class Index:
    """Postings of term `t`: `rows[offsets[t]:offsets[t + 1]]`, ascending, and `counts` beside.

    It depends on the texts and their analysis alone, so that all weightings share it.
    """

    words: ByteWords
    keys: Keys
    offsets: NDArray[np.int64]
    rows: NDArray[np.int32]
    counts: NDArray[np.unsignedinteger]
    lengths: NDArray[np.int32]

    def __len__(self) -> int:
        """Number of documents, empty ones and repeated ids included."""
        return len(self.lengths)

    @cached_property
    def average_length(self) -> float:
        """Mean number of terms a document."""
        return float(self.lengths.mean(dtype=np.float64)) if len(self) else 0.0

    @property
    def document_frequencies(self) -> NDArray[np.int64]:
        """In how many documents each term occurs."""
        return np.diff(self.offsets)

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """The numbers of the terms with these keys, -1 for unknown ones."""
        if not len(self.keys):
            return np.full(len(keys), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, places, -1)


def build_index(tokens: TokenColumns) -> Index:
    """Count every term of every document: sort a part of the corpus at a time, then join them.

    A part is so small that a term and a document fit in 32 bits together, which sort fastest.
    """
    terms = len(tokens.words)
    row_bits = 32 - max(terms - 1, 1).bit_length()
    step = 1 << min(row_bits, _PART_BITS)
    parts = [
        _Part.of(tokens, slice(start, min(start + step, len(tokens))), row_bits)
        for start in range(0, len(tokens), step)
    ]
    offsets = np.zeros(terms + 1, dtype=np.int64)
    for part in parts:
        offsets[1:] += part.frequencies
    np.cumsum(offsets, out=offsets)
    rows = np.empty(offsets[-1], dtype=np.int32)
    largest = max((int(part.counts.max(initial=0)) for part in parts), default=0)
    counts = np.empty(offsets[-1], dtype=np.min_scalar_type(largest))
    following = offsets[:-1].copy()
    for part in parts:
        places = part.places(following)
        rows[places], counts[places] = part.rows, part.counts
        following += part.frequencies
    lengths = np.diff(tokens.offsets).astype(np.int32)
    return Index(tokens.words, tokens.keys, offsets, rows, counts, lengths)


@dataclass(frozen=True, eq=False)
class _Part:
    """The postings of some documents, ordered by term, then row."""

    frequencies: NDArray[np.int64]
    rows: NDArray[np.int32]
    counts: NDArray[np.int32]

    @classmethod
    def of(cls, tokens: TokenColumns, documents: slice, row_bits: int) -> _Part:
        bounds = tokens.offsets[documents.start : documents.stop + 1]
        pairs = tokens.terms[bounds[0] : bounds[-1]].astype(np.uint32)
        pairs <<= np.uint32(row_bits)
        pairs |= np.repeat(np.arange(len(bounds) - 1, dtype=np.uint32), np.diff(bounds))
        pairs, counts = distinct(pairs)
        frequencies = np.bincount(pairs >> np.uint32(row_bits), minlength=len(tokens.words))
        pairs &= np.uint32((1 << row_bits) - 1)
        rows = pairs.astype(np.int32) + np.int32(documents.start)
        return cls(frequencies, rows, counts.astype(np.int32))

    def places(self, following: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the postings go, when those of each term go to `following` and on."""
        starts = np.cumsum(self.frequencies) - self.frequencies
        moved = np.repeat(following - starts, self.frequencies)
        moved += np.arange(len(moved))
        return moved


def distinct(values: NDArray[Values]) -> tuple[NDArray[Values], NDArray[np.int64]]:
    """The distinct values in order, and how often each occurs; `values` is sorted in place."""
    values.sort()
    fresh = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=fresh[1:])
    first = np.flatnonzero(fresh)
    return values[first], np.diff(first, append=len(values))


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
