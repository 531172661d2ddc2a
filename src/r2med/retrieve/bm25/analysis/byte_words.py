"""Many short words in one buffer: how distinct words are held between finding and stemming."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.bm25.analysis.intern import PADDING, Keys, word_keys

Places = NDArray[np.int64]


@dataclass(frozen=True)
class ByteWords:
    """UTF-8 words one after the other; word `i` is `data[offsets[i]:offsets[i + 1]]`."""

    data: NDArray[np.uint8]
    offsets: Places

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Places:
        """Bytes of every word."""
        return np.diff(self.offsets)

    @property
    def keys(self) -> Keys:
        """The number that stands for each word in hash tables."""
        padded = np.concatenate([self.data, np.zeros(PADDING, dtype=np.uint8)])
        return word_keys(padded, self.offsets[:-1], self.offsets[1:])

    def text(self, place: int) -> str:
        """One word as a string."""
        return self.data[self.offsets[place] : self.offsets[place + 1]].tobytes().decode("utf-8")

    def take(self, places: Places, lengths: Places | None = None) -> ByteWords:
        """Some of the words, cut to these lengths if given."""
        starts = self.offsets[places]
        ends = self.offsets[places + 1] if lengths is None else starts + lengths
        return ByteWords.cut(self.data, starts, ends)

    @classmethod
    def cut(cls, block: NDArray[np.uint8], starts: Places, ends: Places) -> ByteWords:
        """Words copied out of a longer text."""
        lengths = ends - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return cls(block[places], offsets)

    @classmethod
    def of(cls, words: Iterable[str]) -> ByteWords:
        """From strings."""
        encoded = [word.encode("utf-8") for word in words]
        lengths = np.array([len(word) for word in encoded], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets)

    @classmethod
    def concatenated(cls, parts: Sequence[ByteWords]) -> ByteWords:
        """The words of all parts, in order."""
        lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)])
        data = np.concatenate([np.empty(0, np.uint8), *(part.data for part in parts)])
        return cls(data, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
