"""The inverted index as arrays: for each term its documents and counts, made by sorting numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.bm25.analysis import TokenColumns
from r2med.retrieve.bm25.analysis.byte_words import ByteWords
from r2med.retrieve.bm25.analysis.intern import Keys

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
