"""The inverted index as arrays: for each term its documents and counts, made by one sort."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.bm25.analysis import TokenColumns
from r2med.retrieve.bm25.analysis.byte_words import ByteWords
from r2med.retrieve.bm25.analysis.intern import Keys


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
    """Count every term of every document."""
    lengths = np.diff(tokens.offsets)
    row_bits = max(len(tokens) - 1, 1).bit_length()
    pairs = tokens.terms.astype(np.int64)
    pairs <<= row_bits
    pairs |= np.repeat(np.arange(len(tokens), dtype=np.int64), lengths)
    pairs, counts = distinct(pairs)
    terms = pairs >> row_bits
    frequencies = np.bincount(terms, minlength=len(tokens.words))
    pairs &= (1 << row_bits) - 1
    return Index(
        words=tokens.words,
        keys=tokens.keys,
        offsets=np.concatenate([[0], np.cumsum(frequencies)]).astype(np.int64),
        rows=pairs.astype(np.int32),
        counts=counts.astype(np.min_scalar_type(int(counts.max(initial=0)))),
        lengths=lengths.astype(np.int32),
    )


def distinct(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct values in order, and how often each occurs; `values` is sorted in place."""
    values.sort()
    fresh = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=fresh[1:])
    first = np.flatnonzero(fresh)
    return values[first], np.diff(first, append=len(values))
