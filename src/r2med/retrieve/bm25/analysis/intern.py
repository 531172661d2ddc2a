"""Numbers for words: a hash table over whole columns, so that no word becomes a Python string.

Written by hand because every library route (Arrow dictionaries, polars categoricals, np.unique)
first needs the words as separate strings or sorts them; here the bytes are read once, in place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Places = NDArray[np.int64]

#: Bytes that must follow the last word of a block, so that eight can be read from anywhere.
PADDING = 16

_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX_LONG = np.uint64(0xC2B2AE3D27D4EB4F)
_LONG = np.uint64(1 << 63)
_MASKS = np.array([(1 << 8 * kept) - 1 for kept in range(9)], dtype=np.uint64)


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
    taken = 8
    active = np.arange(len(rest))
    while True:
        active = active[lengths[rest[active]] > taken]
        if not len(active):
            break
        chosen = rest[active]
        more = _eight_bytes(words, starts[chosen] + taken)
        more &= _MASKS[np.minimum(lengths[chosen] - taken, 8)]
        mixed = hashes[active]
        mixed ^= mixed >> np.uint64(29)
        hashes[active] = (mixed + more) * _MIX_LONG
        taken += 8
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

    def __len__(self) -> int:
        return self._count

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
        found = self._keys[slots]
        np.take(self._numbers, slots, out=numbers, mode="clip")
        pending = np.flatnonzero(found != keys)
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
