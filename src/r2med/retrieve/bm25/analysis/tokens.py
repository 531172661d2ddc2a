"""Analysed text as columns: which terms, in which order, in which row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.retrieve.bm25.analysis.byte_words import ByteWords
from r2med.retrieve.bm25.analysis.intern import Keys


@dataclass(frozen=True)
class TokenColumns:
    """The terms of row `i` are `terms[offsets[i]:offsets[i + 1]]`: numbers into `vocabulary`.

    The vocabulary is ordered by `keys`, so that another text's terms are found by bisection.
    """

    words: ByteWords
    keys: Keys
    terms: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def vocabulary(self) -> pa.LargeStringArray:
        """The distinct terms."""
        buffers = [None, pa.py_buffer(self.words.offsets), pa.py_buffer(self.words.data)]
        return pa.Array.from_buffers(pa.large_string(), len(self.words), buffers)

    def row(self, place: int) -> list[str]:
        """The terms of one row, in order."""
        part = self.terms[self.offsets[place] : self.offsets[place + 1]]
        return [self.words.text(int(term)) for term in part]
