"""Many words as columns: blocks of text, the words cut out of them, and a number for each word.

No word of a text becomes a Python string: its bytes are read once, in place, as numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.runs.run import offsets_of

Keys = NDArray[np.uint64]
Places = NDArray[np.int64]
Texts: TypeAlias = pa.Array | pa.ChunkedArray
Block: TypeAlias = tuple[bytes, Places]
Group: TypeAlias = tuple[NDArray[np.int32], Places]
"""The numbers of the words or terms of some rows, and how many each row has."""
Item = TypeVar("Item")
Done = TypeVar("Done")

#: Bytes that must follow the last word of a block, so that eight can be read from anywhere.
PADDING = 16
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX_LONG = np.uint64(0xC2B2AE3D27D4EB4F)
_LONG = np.uint64(1 << 63)
_MASKS = np.array([(1 << 8 * kept) - 1 for kept in range(9)], dtype=np.uint64)
#: Bytes of text per block: the arrays made of it stay in the processor's cache.
_BLOCK = 1 << 20
#: Rows per group: enough that postings of one term lie together, few for the processor's cache.
_GROUP_ROWS = 1 << 14
#: Array operations release the interpreter, so that a second thread pays; more do not.
_THREADS = 2


@dataclass(frozen=True)
class TokenColumns:
    """The terms of row `i` are `terms[offsets[i]:offsets[i + 1]]`: numbers into `words`.

    The words are ordered by `keys`, so that another text's terms are found by bisection.
    """

    words: ByteWords
    keys: Keys
    terms: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, place: int) -> list[str]:
        """The terms of one row, in order."""
        part = self.terms[self.offsets[place] : self.offsets[place + 1]]
        return [self.words.text(int(term)) for term in part]


def taken(items: deque[Item]) -> Iterator[Item]:
    """Every item, each forgotten once it is taken."""
    while items:
        yield items.popleft()


def joined(blocks: Iterable[Group]) -> Iterator[Group]:
    """Blocks put together until they have enough rows."""
    numbers: list[NDArray[np.int32]] = []
    lengths: list[Places] = []
    for block in blocks:
        numbers.append(block[0])
        lengths.append(block[1])
        if sum(map(len, lengths)) >= _GROUP_ROWS:
            yield np.concatenate(numbers), np.concatenate(lengths)
            numbers, lengths = [], []
    if lengths:
        yield np.concatenate(numbers), np.concatenate(lengths)


@dataclass(frozen=True)
class ByteWords:
    """Words one after the other, in UTF-8; word `i` is `data[offsets[i]:offsets[i + 1]]`."""

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
        offsets = offsets_of(lengths)
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return cls(block[places], offsets)

    @classmethod
    def of(cls, words: Iterable[str]) -> ByteWords:
        """From strings."""
        encoded = [word.encode("utf-8") for word in words]
        data = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        return cls(data, offsets_of([len(word) for word in encoded]))

    @classmethod
    def concatenated(cls, parts: Sequence[ByteWords]) -> ByteWords:
        """The words of all parts, in order."""
        lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)])
        data = np.concatenate([np.empty(0, np.uint8), *(part.data for part in parts)])
        return cls(data, offsets_of(lengths))


def text_blocks(texts: Texts) -> Iterator[Block]:
    """Blocks, each with the place of every row in it; nulls count as empty rows.

    A block begins with a blank, has one after every row, and ends with `PADDING` more.
    """
    blank, end = pa.scalar("\n", pa.large_string()), b"\n" * PADDING
    for column in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
        column = column.fill_null("").cast(pa.large_string())
        offsets = np.zeros(1, dtype=np.int64)
        if len(column):
            held = np.frombuffer(column.buffers()[1], dtype=np.int64)
            offsets = held[column.offset : column.offset + len(column) + 1]
        bounds = np.searchsorted(offsets, np.arange(offsets[0], offsets[-1], _BLOCK))
        edges = np.unique(np.concatenate([[0], bounds, [len(column)]]))
        for first, last in pairwise(edges.tolist()):
            rows = pa.LargeListArray.from_arrays([0, last - first], column[first:last])
            text = pc.binary_join(rows, blank)[0].as_buffer()
            starts = offsets[first:last] - offsets[first] + np.arange(1, last - first + 1)
            yield b"".join([b"\n", text, end]), starts


def word_keys(block: NDArray[np.uint8], starts: Places, ends: Places) -> Keys:
    """A number for each word: its very bytes when seven or fewer, else a 63-bit hash of them.

    Two of a million distinct long words share a number with odds of one in ten million.
    """
    words = block[: len(block) // 8 * 8].view(np.uint64)
    lengths = ends - starts
    keys = _eight_bytes(words, starts)
    keys &= _MASKS[np.minimum(lengths, 8)]
    rest = np.flatnonzero(lengths > 7)
    hashes = keys[rest] * _MIX
    active = np.arange(len(rest))
    for taken in range(8, int(lengths.max(initial=0)), 8):
        active = active[lengths[rest[active]] > taken]
        chosen = rest[active]
        more = _eight_bytes(words, starts[chosen] + taken)
        more &= _MASKS[np.minimum(lengths[chosen] - taken, 8)]
        mixed = hashes[active]
        mixed ^= mixed >> np.uint64(29)
        hashes[active] = (mixed + more) * _MIX_LONG
    hashes ^= hashes >> np.uint64(32)
    keys[rest] = hashes | _LONG
    return keys


def _eight_bytes(words: Keys, places: Places) -> Keys:
    """The eight bytes from each place on, put together from the two aligned words they lie in."""
    index = places >> 3
    shift = ((places & 7) << 3).astype(np.uint64)
    low: Keys = words[index] >> shift
    high = words[index + 1] << np.uint64(1) << (np.uint64(63) - shift)
    low |= high
    return low


class Numbering:
    """Keys to consecutive numbers, in order of first appearance, by open addressing."""

    def __init__(self, bits: int = 12) -> None:
        self._count = 0
        self._allocate(bits)

    def _allocate(self, bits: int) -> None:
        self._bits = bits
        self._keys = np.zeros(1 << bits, dtype=np.uint64)
        self._numbers = np.zeros(1 << bits, dtype=np.int32)

    def number(self, keys: Keys) -> tuple[NDArray[np.int32], Places]:
        """The number of every key, and the places in `keys` where a new one first appears."""
        numbers = np.empty(len(keys), dtype=np.int32)
        unknown = self._look_up(keys, numbers)
        if not len(unknown):
            return numbers, unknown
        fresh, first, inverse = np.unique(keys[unknown], return_index=True, return_inverse=True)
        order = np.argsort(first)
        given = np.empty(len(fresh), dtype=np.int32)
        given[order] = np.arange(self._count, self._count + len(fresh), dtype=np.int32)
        numbers[unknown] = given[inverse]
        self._insert(fresh, given)
        return numbers, unknown[first[order]]

    def _slots(self, keys: Keys) -> Places:
        return ((keys * _MIX) >> np.uint64(64 - self._bits)).view(np.int64)

    def _look_up(self, keys: Keys, numbers: NDArray[np.int32]) -> Places:
        """Fill in the numbers of known keys; return the places of unknown ones."""
        slots = self._slots(keys)
        np.take(self._numbers, slots, out=numbers, mode="clip")
        pending = np.flatnonzero(self._keys[slots] != keys)
        unknown = []
        while len(pending):
            held = self._keys[slots[pending]]
            empty = held == 0
            unknown.append(pending[empty])
            pending = pending[~empty]
            slots[pending] = (slots[pending] + 1) & ((1 << self._bits) - 1)
            hit = self._keys[slots[pending]] == keys[pending]
            numbers[pending[hit]] = self._numbers[slots[pending[hit]]]
            pending = pending[~hit]
        return np.sort(np.concatenate(unknown)) if unknown else pending

    def _insert(self, keys: Keys, numbers: NDArray[np.int32]) -> None:
        self._count += len(keys)
        if self._count > 1 << self._bits - 1:
            occupied = np.flatnonzero(self._keys)
            keys = np.concatenate([self._keys[occupied], keys])
            numbers = np.concatenate([self._numbers[occupied], numbers])
            self._allocate(int(self._count).bit_length() + 2)
        slots = self._slots(keys)
        while len(keys):
            free = self._keys[slots] == 0
            self._keys[slots[free]] = keys[free]
            settled = self._keys[slots] == keys
            self._numbers[slots[settled]] = numbers[settled]
            keys, numbers, slots = keys[~settled], numbers[~settled], slots[~settled]
            slots = (slots + 1) & ((1 << self._bits) - 1)


def in_threads(work: Callable[[Item], Done], items: Iterable[Item]) -> Iterator[Done]:
    """Do work on items in a few threads; results come in order, and only a few wait at a time."""
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting: deque[Future[Done]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
