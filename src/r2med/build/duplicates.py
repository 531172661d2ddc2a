"""Find passages that equal or nearly equal others, with about 150 bytes of memory per passage.

Hashes only propose pairs; every pair is compared word by word. Two passages are nearly equal if
they share enough three-word runs (Jaccard). MinHash with bands proposes those pairs; with a
threshold of 0.8 it proposes 998 of 1,000 of them. Written here because MinHash libraries loop over
words in Python, which takes a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from r2med.audit.matching import SHINGLE, word_columns, words

Keys = NDArray[np.uint64]
Positions = NDArray[np.int64]

_BANDS, _ROWS = 12, 4
_SEED = 20250514
_EMPTY = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class Duplicate:
    """A passage that repeats an earlier one."""

    index: int
    original: int
    similarity: float
    """Jaccard similarity to the original; 1.0 if all words are equal."""


@dataclass
class DuplicateFinder:
    """Collects hashes of passages, then finds those that repeat an earlier one."""

    threshold: float | None
    """Smallest similarity at which passages are folded; None folds only equal passages."""
    _text_keys: list[Keys] = field(default_factory=list)
    _bands: list[Keys] = field(default_factory=list)

    def add(self, texts: Sequence[str]) -> None:
        """Add the next passages; the order in which passages are added gives their indexes."""
        columns = word_columns(texts)
        self._text_keys.append(columns.whole())
        if self.threshold is None:
            return
        hashes = columns.shingles()
        positions = np.arange(len(hashes))
        owners = columns.text_at(positions)
        is_inside = columns.inside(positions, owners)
        self._bands.append(_band_keys(hashes[is_inside], owners[is_inside], len(texts)))

    def find(self, text_of: Callable[[int], str]) -> list[Duplicate]:
        """Return all duplicates, sorted by index; `text_of` returns a passage's text by index."""
        if not self._text_keys:
            return []
        text_keys = np.concatenate(self._text_keys)
        duplicates: dict[int, Duplicate] = {}
        for index, original in _pairs_of_equal(text_keys):
            if index not in duplicates and words(text_of(index)) == words(text_of(original)):
                first = duplicates[original].original if original in duplicates else original
                duplicates[index] = Duplicate(index, first, 1.0)
        if self.threshold is not None:
            self._find_near(text_of, duplicates)
        return [duplicates[index] for index in sorted(duplicates)]

    def _find_near(self, text_of: Callable[[int], str], duplicates: dict[int, Duplicate]) -> None:
        """Add to `duplicates` the passages that nearly equal an earlier passage."""
        assert self.threshold is not None
        bands = np.concatenate(self._bands)
        is_first = np.ones(len(bands), dtype=bool)
        is_first[list(duplicates)] = False
        remaining = np.flatnonzero(is_first & (bands[:, 0] != _EMPTY))
        proposed: set[tuple[int, int]] = set()
        for band in range(_BANDS):
            keys = bands[remaining, band]
            proposed.update(
                (int(remaining[index]), int(remaining[original]))
                for index, original in _pairs_of_equal(keys)
            )
        for index, original in sorted(proposed):
            if index in duplicates:
                continue
            if original in duplicates:
                original = duplicates[original].original
            similarity = compare_texts(text_of(index), text_of(original))
            if similarity >= self.threshold:
                duplicates[index] = Duplicate(index, original, similarity)


def compare_texts(text: str, other_text: str) -> float:
    """Return the share of three-word runs that two texts have in common (Jaccard)."""
    runs, other_runs = _runs(text), _runs(other_text)
    union = len(runs | other_runs)
    return len(runs & other_runs) / union if union else 0.0


def _runs(text: str) -> set[tuple[str, ...]]:
    sequence = words(text)
    return {
        tuple(sequence[start : start + SHINGLE]) for start in range(len(sequence) - SHINGLE + 1)
    }


def _band_keys(hashes: Keys, owners: Positions, count: int) -> Keys:
    """Return the MinHash keys of texts: one row per text, one column per band."""
    bands = np.full((count, _BANDS), _EMPTY)
    if not len(hashes):
        return bands
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    present = owners[starts]
    random = np.random.default_rng(_SEED)
    for band in range(_BANDS):
        key = np.zeros(len(present), dtype=np.uint64)
        for _ in range(_ROWS):
            factor = random.integers(1, 2**63, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
            shift = random.integers(0, 2**63, dtype=np.uint64)
            mixed = hashes * factor + shift
            mixed ^= mixed >> np.uint64(31)
            least = np.minimum.reduceat(mixed, starts)
            key = (key ^ least) * np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
        bands[present, band] = key & np.uint64(2**63 - 1)
    return bands


def _pairs_of_equal(keys: Keys) -> Iterator[tuple[int, int]]:
    """Yield pairs of indexes with equal keys: each repeat with the first and the previous index."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    edges = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1], [True]]))
    sizes = np.diff(edges)
    for group in np.flatnonzero(sizes > 1).tolist():
        members = order[edges[group] : edges[group + 1]].tolist()
        for previous, index in pairwise(members):
            yield index, members[0]
            if previous != members[0]:
                yield index, previous
