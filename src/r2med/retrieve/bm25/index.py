"""The inverted index: for each term its documents and counts, in memory and in its file."""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.atomic import atomic_file, let_go
from r2med.errors import DamagedError
from r2med.home import shelf
from r2med.retrieve.bm25.words import ByteWords, Group, Keys, TokenGroups, in_threads

Values = TypeVar("Values", bound=np.integer[Any])

_PART_BITS, _LEAST_BITS = 14, 11
"""Most documents a part, as powers of two: its pairs stay in the processor's cache.

There are fewer, down to the least, where a term and a document would not fit in 32 bits together.
"""


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


def build_index(tokens: TokenGroups) -> Index:
    """Count every term of every document: sort a part of the corpus at a time, then join them.

    What is held at once are the words' numbers, or the parts and the index; groups and parts are
    forgotten as they are used.
    """
    made = in_threads(lambda group: _parts(tokens, group), tokens.taken())
    parts = deque(chain.from_iterable(made))
    let_go()
    offsets = np.zeros(len(tokens.words) + 1, dtype=np.int64)
    for part in parts:
        offsets[part.terms + 1] += part.frequencies
    np.cumsum(offsets, out=offsets)
    rows = np.empty(offsets[-1], dtype=np.int32)
    counts = np.empty(offsets[-1], np.result_type(np.uint8, *{part.counts.dtype for part in parts}))
    lengths = np.concatenate([np.empty(0, np.int32), *(part.lengths for part in parts)])

    def placed(item: tuple[_Part, int, NDArray[np.int64]]) -> None:
        part, first, following = item
        places = part.places(following)
        rows[places] = part.rows + np.int32(first)
        counts[places] = part.counts

    for _ in in_threads(placed, _following(parts, offsets[:-1].copy())):
        pass
    let_go()
    return Index(tokens.words, tokens.keys, offsets, rows, counts, lengths)


def _following(
    parts: deque[_Part], following: NDArray[np.int64]
) -> Iterator[tuple[_Part, int, NDArray[np.int64]]]:
    """Each part, its first row in the corpus, and where the postings of each of its terms begin."""
    first = 0
    while parts:
        part = parts.popleft()
        yield part, first, following[part.terms]
        first += len(part.lengths)
        following[part.terms] += part.frequencies


def _parts(tokens: TokenGroups, group: Group) -> list[_Part]:
    """A group's postings, of so few documents at a time that their numbers fit in few bits."""
    terms, lengths = tokens.terms(group)
    term_bits = len(tokens.words).bit_length()
    row_bits = min(max(32 - term_bits, _LEAST_BITS), _PART_BITS)
    pair = np.uint32 if term_bits + row_bits <= 32 else np.uint64
    cuts = np.arange(1 << row_bits, len(lengths), 1 << row_bits)
    ends = np.cumsum(lengths)[cuts - 1]
    return [
        _Part.of(part.astype(pair), part_lengths, row_bits)
        for part, part_lengths in zip(np.split(terms, ends), np.split(lengths, cuts), strict=True)
    ]


@dataclass(frozen=True, eq=False)
class _Part:
    """The postings of some documents, ordered by term, then row; rows count from its first."""

    terms: NDArray[np.int32]
    frequencies: NDArray[np.int32]
    rows: NDArray[np.uint16]
    counts: NDArray[np.unsignedinteger]
    lengths: NDArray[np.int32]

    @classmethod
    def of(
        cls, terms: NDArray[np.unsignedinteger], lengths: NDArray[np.int64], row_bits: int
    ) -> _Part:
        """Sort pairs of a term and a row; two that fit in 32 bits sort fastest."""
        bits = terms.dtype.type(row_bits)
        pairs = terms << bits
        pairs |= np.repeat(np.arange(len(lengths), dtype=terms.dtype), lengths)
        pairs, counts = distinct(pairs)
        rows = (pairs & terms.dtype.type((1 << row_bits) - 1)).astype(np.uint16)
        pairs >>= bits
        first = _firsts(pairs)
        return cls(
            terms=pairs[first].astype(np.int32),
            frequencies=np.diff(first, append=len(pairs)).astype(np.int32),
            rows=rows,
            counts=counts.astype(np.min_scalar_type(counts.max(initial=0))),
            lengths=lengths.astype(np.int32),
        )

    def places(self, following: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the postings go, when those of its terms go to `following` and on."""
        starts = np.cumsum(self.frequencies) - self.frequencies
        moved = np.repeat(following - starts, self.frequencies)
        moved += np.arange(len(moved))
        return moved


def distinct(values: NDArray[Values]) -> tuple[NDArray[Values], NDArray[np.int64]]:
    """The distinct values in order, and how often each occurs; `values` is sorted in place."""
    values.sort()
    first = _firsts(values)
    return values[first], np.diff(first, append=len(values))


def _firsts(ordered: NDArray[Any]) -> NDArray[np.int64]:
    """Where each distinct one of ordered values first stands."""
    fresh = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return np.flatnonzero(fresh)


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
