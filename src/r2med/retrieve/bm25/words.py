"""Words as columns: blocks of text, the words cut out of them, and a number for each distinct word.

No word of a text becomes a Python string: its bytes are read in place, as numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.runs.run import offsets_of
from r2med.storage import release_memory

Keys = NDArray[np.uint64]
Numbers = NDArray[np.int32]
Positions = NDArray[np.int64]
Texts: TypeAlias = pa.Array | pa.ChunkedArray

#: Bytes that must follow the last word of a block, so that eight can be read from any position.
PADDING = 16
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_LONG_HASH_FACTOR = np.uint64(0xC2B2AE3D27D4EB4F)
_LONG_WORD_BIT = np.uint64(1 << 63)
#: Masks that keep the lowest 0 to 8 bytes of a number.
_BYTE_MASKS = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)
#: Bytes of text per block: the arrays made from it stay in the processor's cache.
_BLOCK_BYTES = 1 << 19
#: Pages of a mapped corpus are released after this many bytes of text.
_RELEASE_BYTES = 1 << 28
#: Words per group of rows: enough to bring postings of a term together, few for the cache.
_GROUP_WORDS = 1 << 19


@dataclass(frozen=True, eq=False)
class TextBlock:
    """Consecutive texts in one string, and the position at which each text starts."""

    text: bytes
    row_starts: Positions


@dataclass(frozen=True, eq=False)
class NumberedRows:
    """The words or terms of consecutive texts as numbers, and how many each text has."""

    numbers: Numbers
    lengths: Positions


@dataclass(frozen=True, eq=False)
class TokenColumns:
    """The terms of texts: text `i` has `terms[offsets[i]:offsets[i + 1]]`, indexes into `words`.

    `words` are sorted by `keys`, so that the terms of another text can be found by bisection.
    """

    words: ByteWords
    keys: Keys
    terms: Numbers
    offsets: Positions

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, index: int) -> list[str]:
        """Return the terms of one text, in order."""
        terms = self.terms[self.offsets[index] : self.offsets[index + 1]]
        return [self.words.text(int(term)) for term in terms]


@dataclass(frozen=True, eq=False)
class ByteWords:
    """Words one after the other, in UTF-8; word `i` is `data[offsets[i]:offsets[i + 1]]`."""

    data: NDArray[np.uint8]
    offsets: Positions

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Positions:
        """The number of bytes of every word."""
        return np.diff(self.offsets)

    @property
    def keys(self) -> Keys:
        """The key of every word; see `word_keys`."""
        padded = np.concatenate([self.data, np.zeros(PADDING, dtype=np.uint8)])
        return word_keys(padded, self.offsets[:-1], self.offsets[1:])

    def text(self, index: int) -> str:
        """Return one word as a string."""
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes().decode("utf-8")

    def take(self, indexes: Positions, lengths: Positions | None = None) -> ByteWords:
        """Return the words at these indexes, truncated to `lengths` bytes if that is given."""
        starts = self.offsets[indexes]
        ends = self.offsets[indexes + 1] if lengths is None else starts + lengths
        return ByteWords.cut(self.data, starts, ends)

    @classmethod
    def cut(cls, block: NDArray[np.uint8], starts: Positions, ends: Positions) -> ByteWords:
        """Copy the words at these positions of a longer text."""
        lengths = ends - starts
        offsets = offsets_of(lengths)
        positions = np.arange(offsets[-1])
        positions += np.repeat(starts - offsets[:-1], lengths)
        return cls(block[positions], offsets)

    @classmethod
    def from_strings(cls, words: Iterable[str]) -> ByteWords:
        """Encode strings as UTF-8."""
        encoded = [word.encode("utf-8") for word in words]
        data = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        return cls(data, offsets_of([len(word) for word in encoded]))

    @classmethod
    def concatenate(cls, parts: Sequence[ByteWords]) -> ByteWords:
        """Return the words of all parts, in order."""
        lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)])
        data = np.concatenate([np.empty(0, np.uint8), *(part.data for part in parts)])
        return cls(data, offsets_of(lengths))


def split_into_blocks(texts: Texts) -> Iterator[TextBlock]:
    """Yield the texts in blocks; a null is an empty text.

    A block begins with a line feed, has a line feed after every text, and ends with `PADDING` more.
    """
    separator, end = pa.scalar("\n", pa.large_string()), b"\n" * PADDING
    unreleased = 0
    for chunk in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
        column = chunk.fill_null("").cast(pa.large_string())
        offsets = np.zeros(1, dtype=np.int64)
        if len(column):
            buffer = np.frombuffer(column.buffers()[1], dtype=np.int64)
            offsets = buffer[column.offset : column.offset + len(column) + 1]
        bounds = np.searchsorted(offsets, np.arange(offsets[0], offsets[-1], _BLOCK_BYTES))
        edges = dict.fromkeys([0, *bounds.tolist(), len(column)])  # a long row has several bounds
        for first, last in pairwise(edges):
            rows = pa.LargeListArray.from_arrays([0, last - first], column[first:last])
            text = pc.binary_join(rows, separator)[0].as_buffer()
            row_starts = offsets[first:last] - offsets[first] + np.arange(1, last - first + 1)
            unreleased += len(text)
            if unreleased > _RELEASE_BYTES:
                release_memory()
                unreleased = 0
            yield TextBlock(b"".join([b"\n", text, end]), row_starts)


def group_rows(blocks: Iterable[NumberedRows]) -> Iterator[NumberedRows]:
    """Combine consecutive blocks into larger groups, so that each has enough words."""
    waiting: list[NumberedRows] = []
    words = 0
    for block in blocks:
        waiting.append(block)
        words += len(block.numbers)
        if words >= _GROUP_WORDS:
            yield _concatenate_rows(waiting)
            waiting, words = [], 0
    if waiting:
        yield _concatenate_rows(waiting)


def _concatenate_rows(blocks: Sequence[NumberedRows]) -> NumberedRows:
    return NumberedRows(
        numbers=np.concatenate([block.numbers for block in blocks]),
        lengths=np.concatenate([block.lengths for block in blocks]),
    )


def word_keys(block: NDArray[np.uint8], starts: Positions, ends: Positions) -> Keys:
    """Return a key for each word: its bytes if there are at most seven, else a 63-bit hash of them.

    Among a million distinct long words, the probability that any two have the same key is one in
    ten million.
    """
    aligned = block[: len(block) // 8 * 8].view(np.uint64)
    lengths = ends - starts
    keys = _read_eight_bytes(aligned, starts)
    keys &= _BYTE_MASKS[np.minimum(lengths, 8)]
    long_words = np.flatnonzero(lengths > 7)
    hashes = keys[long_words] * _HASH_FACTOR
    unfinished = np.arange(len(long_words))
    for hashed_bytes in range(8, int(lengths.max(initial=0)), 8):
        unfinished = unfinished[lengths[long_words[unfinished]] > hashed_bytes]
        words = long_words[unfinished]
        next_bytes = _read_eight_bytes(aligned, starts[words] + hashed_bytes)
        next_bytes &= _BYTE_MASKS[np.minimum(lengths[words] - hashed_bytes, 8)]
        mixed = hashes[unfinished]
        mixed ^= mixed >> np.uint64(29)
        hashes[unfinished] = (mixed + next_bytes) * _LONG_HASH_FACTOR
    hashes ^= hashes >> np.uint64(32)
    keys[long_words] = hashes | _LONG_WORD_BIT
    return keys


def _read_eight_bytes(aligned: Keys, positions: Positions) -> Keys:
    """Return the eight bytes at each position, combined from the two aligned numbers with them."""
    indexes = positions >> 3
    shifts = ((positions & 7) << 3).astype(np.uint64)
    low: Keys = aligned[indexes] >> shifts
    # Shifted in two steps, because a shift by 64 bits is undefined.
    high = aligned[indexes + 1] << np.uint64(1) << (np.uint64(63) - shifts)
    low |= high
    return low


class Numbering:
    """Numbers keys in order of first appearance, in a hash table with open addressing.

    Key 0 marks a free slot and must not be numbered.
    """

    def __init__(self, bits: int = 12) -> None:
        self._count = 0
        self._allocate(bits)

    def __len__(self) -> int:
        return self._count

    def _allocate(self, bits: int) -> None:
        self._bits = bits
        self._keys = np.zeros(1 << bits, dtype=np.uint64)
        self._numbers = np.zeros(1 << bits, dtype=np.int32)

    def number(self, keys: Keys) -> tuple[Numbers, Positions]:
        """Return the number of every key, and the positions in `keys` of first uses of new keys."""
        numbers = np.empty(len(keys), dtype=np.int32)
        unknown = self._look_up(keys, numbers)
        if not len(unknown):
            return numbers, unknown
        new_keys, first, inverse = np.unique(keys[unknown], return_index=True, return_inverse=True)
        order = np.argsort(first)
        new_numbers = np.empty(len(new_keys), dtype=np.int32)
        new_numbers[order] = np.arange(self._count, self._count + len(new_keys), dtype=np.int32)
        numbers[unknown] = new_numbers[inverse]
        self._insert(new_keys, new_numbers)
        return numbers, unknown[first[order]]

    def _first_slots(self, keys: Keys) -> Positions:
        return ((keys * _HASH_FACTOR) >> np.uint64(64 - self._bits)).view(np.int64)

    def _next_slots(self, slots: Positions) -> Positions:
        return (slots + 1) & ((1 << self._bits) - 1)

    def _look_up(self, keys: Keys, numbers: Numbers) -> Positions:
        """Write the numbers of known keys to `numbers`; return the positions of unknown keys."""
        slots = self._first_slots(keys)
        np.take(self._numbers, slots, out=numbers, mode="clip")
        pending = np.flatnonzero(self._keys[slots] != keys)
        unknown = []
        while len(pending):
            is_free = self._keys[slots[pending]] == 0
            unknown.append(pending[is_free])
            pending = pending[~is_free]
            slots[pending] = self._next_slots(slots[pending])
            is_match = self._keys[slots[pending]] == keys[pending]
            matches = pending[is_match]
            numbers[matches] = self._numbers[slots[matches]]
            pending = pending[~is_match]
        return np.sort(np.concatenate(unknown)) if unknown else pending

    def _insert(self, keys: Keys, numbers: Numbers) -> None:
        """Insert new keys with their numbers; the table grows so that it is at most half full."""
        self._count += len(keys)
        half_of_table = (1 << self._bits) // 2
        if self._count > half_of_table:
            occupied = np.flatnonzero(self._keys)
            keys = np.concatenate([self._keys[occupied], keys])
            numbers = np.concatenate([self._numbers[occupied], numbers])
            self._allocate(self._count.bit_length() + 2)
        slots = self._first_slots(keys)
        while len(keys):
            is_free = self._keys[slots] == 0
            # Of several keys with the same free slot, the last one written gets it.
            self._keys[slots[is_free]] = keys[is_free]
            is_inserted = self._keys[slots] == keys
            self._numbers[slots[is_inserted]] = numbers[is_inserted]
            is_pending = ~is_inserted
            keys, numbers = keys[is_pending], numbers[is_pending]
            slots = self._next_slots(slots[is_pending])
