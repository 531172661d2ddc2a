"""Words of many texts as 64-bit numbers, and their runs of three: what matching looks up.

Written by hand on arrays because a Python loop over words, as MinHash libraries have it, costs
more than a hundred times as much. Equal words always have equal numbers; the reverse is only
likely, so whatever is found here is compared word by word before it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from r2med.audit.exclusions import words
from r2med.retrieve.bm25.words import PADDING, word_keys

Hashes = NDArray[np.uint64]
Places = NDArray[np.int64]

#: Words in a shingle. Of runs of three, 73 % survive when every tenth word is changed; of five, 59.
SHINGLE = 3
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_LAST = np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)
#: Letters and digits in lower case, bytes of other alphabets as they are, all else blank.
_FOLDED = bytes(
    byte if byte >= 128 else ord(chr(byte).lower()) if chr(byte).isalnum() else 0
    for byte in range(256)
)


@dataclass(frozen=True, eq=False)
class WordColumns:
    """The words of text `i` are `keys[offsets[i]:offsets[i + 1]]`."""

    keys: Hashes
    offsets: Places

    @property
    def lengths(self) -> Places:
        """Words of every text."""
        return np.diff(self.offsets)

    def shingles(self) -> Hashes:
        """A hash for the run of three words that begins at each word but the last two.

        Runs that reach into the next text are among them: see `inside`.
        """
        keys = self.keys
        if len(keys) < SHINGLE:
            return np.empty(0, dtype=np.uint64)
        hashes: Hashes = keys[:-2] * _FIRST
        hashes += keys[1:-1]
        hashes ^= hashes >> _HALF
        hashes *= _SECOND
        hashes += keys[2:]
        hashes ^= hashes >> _HALF
        hashes *= _LAST
        return hashes

    def text_at(self, places: Places) -> Places:
        """Which text each word belongs to."""
        return np.searchsorted(self.offsets, places, side="right") - 1

    def inside(self, places: Places, texts: Places) -> NDArray[np.bool_]:
        """Whether the shingle at each place ends in the text that it begins in."""
        within: NDArray[np.bool_] = places + SHINGLE <= self.offsets[texts + 1]
        return within

    def whole(self) -> Hashes:
        """A hash of all words of each text, in their order."""
        place = np.arange(len(self.keys), dtype=np.uint64)
        place -= np.repeat(self.offsets[:-1], self.lengths).astype(np.uint64)
        turned = (self.keys + place * _FIRST) * _SECOND
        turned ^= turned >> _HALF
        turned *= _LAST
        total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(turned, dtype=np.uint64)])
        sums: Hashes = total[self.offsets[1:]] - total[self.offsets[:-1]]
        return sums


def word_columns(texts: Sequence[str]) -> WordColumns:
    """The words of `exclusions.words` for every text, as numbers."""
    rows = [text.encode() if text.isascii() else " ".join(words(text)).encode() for text in texts]
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    block = b"".join([b"\n", b"\n".join(rows), b"\n" * PADDING]).translate(_FOLDED)
    data = np.frombuffer(block, dtype=np.uint8)
    edges = np.flatnonzero(np.diff((data != 0).view(np.int8))) + 1
    starts, ends = edges[0::2], edges[1::2]
    keys = word_keys(data, starts, ends)
    keys *= _FIRST
    keys ^= keys >> _HALF
    keys *= _SECOND
    row_ends = np.cumsum(lengths + 1)
    offsets = np.concatenate([[0], np.searchsorted(starts, row_ends)]).astype(np.int64)
    return WordColumns(keys, offsets)
