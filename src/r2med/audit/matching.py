"""Find training texts that contain an evaluation text, in whole, in part or with changed words.

An index of the evaluation's three-word runs proposes pairs of texts; every pair is then compared
word by word, and only what that comparison shows is reported. All shares are of words:

covered   words inside runs of `ngram` words that both texts share
aligned   words inside runs of three words that both texts share

| kind           | of the two texts                                                           |
|----------------|----------------------------------------------------------------------------|
| exact          | the same words in the same order                                           |
| contained      | 90 % of the evaluation text is covered; or 90 % of the training text is,   |
|                | and that is at least half of the evaluation text                           |
| near-duplicate | 70 % of the shorter text is aligned, and at least half of the evaluation   |
| excerpt        | less of the evaluation text, but 90 % of the training text or 50 words are |
|                | covered                                                                    |

An evaluation text under eight words matches only if it is exact or, from five words on, contained
word for word; such matches are marked as short. Words that many evaluation texts share weigh less:
a match whose runs are in five evaluation texts or more on (harmonic) average is boilerplate.

The words of many texts are 64-bit numbers in one array, because a Python loop over words, as in
MinHash libraries, costs more than a hundred times as much. Equal words always have equal numbers;
the reverse is only likely, so whatever the numbers propose is compared word by word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.bm25.words import PADDING, word_keys

Words = tuple[str, ...]
Hashes = NDArray[np.uint64]
Places = NDArray[np.int64]

#: Texts with fewer words are short: they count only as exact or as contained word for word.
SHORTEST = 8
#: A short text with fewer words is not looked for inside longer texts.
SHORTEST_CONTAINED = 5
#: Words in a run that counts as copied, unless chosen otherwise.
NGRAM = 8
CONTAINED, NEAR, PART = 0.9, 0.7, 0.5
EXCERPT_WORDS = 50
BOILERPLATE = 5
#: Words in a shingle. Of runs of three, 73 % survive when every tenth word is changed; of five, 59.
SHINGLE = 3
#: A training text is compared over a stretch of at most this many times the evaluation text.
_STRETCH = 2
#: Runs of three that more evaluation texts share propose no pair, unless a text has too few others.
_COMMON = 64
#: Equal runs that make a pair worth comparing: what `NEAR` needs at least, `EXCERPT_WORDS` at most.
_RUNS_PER_WORD = NEAR / SHINGLE
_FEWEST, _MOST = 2, 32
_FILTER_BITS = 24
_KNOWN = 4096
WORDS = re.compile(r"[^\W_]+")
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_LAST = np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)
#: Letters and digits in lower case, bytes of other alphabets as they are, all else blank.
_FOLDED = bytes(
    byte if byte >= 128 else ord(chr(byte).lower()) if chr(byte).isalnum() else 0
    for byte in range(256)
)


@dataclass(frozen=True)
class Match:
    """Training text `text` matches evaluation text `entry`; both are indexes into lists."""

    text: int
    entry: int
    kind: str
    measures: Mapping[str, float] = field(default_factory=dict)
    """`covered`: share of the evaluation text in shared runs of n words; `aligned`: share of the
    shorter text in shared runs of three words."""
    boilerplate: bool = False
    at: int = 0
    """The index of the word of the training text at which the shared words begin."""
    short: bool = False
    """Whether the evaluation text has too few words to be evidence of a leak."""


class TextIndex:
    """An index of evaluation texts, which must be distinct in their words."""

    def __init__(self, texts: Sequence[str], *, ngram: int = NGRAM) -> None:
        self.texts = list(texts)
        self.ngram = ngram
        self._columns = columns = word_columns(self.texts)
        self._by_whole: dict[int, list[int]] = {}
        for entry, key in enumerate(columns.whole().tolist()):
            self._by_whole.setdefault(key, []).append(entry)
        hashes = columns.shingles()
        positions = np.arange(len(hashes))
        holders = columns.text_at(positions)
        inside = columns.inside(positions, holders)
        hashes, holders = hashes[inside], holders[inside]
        pairs = np.lexsort((holders, hashes))
        hashes, holders = hashes[pairs], holders[pairs]
        first = np.ones(len(hashes), dtype=bool)
        first[1:] = (hashes[1:] != hashes[:-1]) | (holders[1:] != holders[:-1])
        self._hashes, starts, self._sharing = np.unique(
            hashes[first], return_index=True, return_counts=True
        )
        self._starts, self._holders = starts.astype(np.int64), holders[first].astype(np.int32)
        self._proposing = self._find_proposing_runs()
        self._filter = np.zeros(1 << _FILTER_BITS, dtype=bool)
        self._filter[_filter_places(self._hashes[self._proposing])] = True
        self._known: dict[int, tuple[Words, list[Words], list[Words]]] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def matches(self, texts: Sequence[str]) -> list[Match]:
        """Return all verified matches of training texts, ordered by `text` and `entry`."""
        columns = word_columns(texts)
        matches: dict[tuple[int, int], Match] = {}
        for text, key in enumerate(columns.whole().tolist()):
            for entry in self._by_whole.get(key, ()):
                if tuple(words(texts[text])) == self._entry(entry)[0]:
                    all_words = {"covered": 1.0, "aligned": 1.0}
                    matches[text, entry] = Match(text, entry, "exact", all_words)
        for text, proposed in groupby(self._propose_pairs(columns).tolist(), key=itemgetter(0)):
            sequence = tuple(words(texts[text]))
            for _, entry, first, last in proposed:
                if (text, entry) not in matches:
                    reach = _STRETCH * int(self._columns.lengths[entry])
                    before = max(first - reach, 0)
                    near = sequence[before : last + SHINGLE + reach]
                    if match := self._compare(text, entry, near, before):
                        matches[text, entry] = match
        return [matches[pair] for pair in sorted(matches)]

    def _find_proposing_runs(self) -> NDArray[np.bool_]:
        """Return which runs propose pairs: rare runs, and all runs of texts with few rare ones."""
        rare = self._sharing <= _COMMON
        run_of_holder = np.repeat(np.arange(len(self._hashes)), self._sharing)
        rare_runs = np.bincount(self._holders[rare[run_of_holder]], minlength=len(self))
        has_few = rare_runs < _needed_runs(self._columns.lengths)
        proposing: NDArray[np.bool_] = rare.copy()
        proposing[run_of_holder[has_few[self._holders]]] = True
        return proposing

    def _compare(self, text: int, entry: int, training: Words, before: int) -> Match | None:
        """Return the match of an evaluation text with the words of a training text, or None.

        If the training text is more than twice as long, only its stretch with the most shared runs
        is compared. `before` is the number of words of the training text that precede `training`.
        """
        entry_words, runs, copied = self._entry(entry)
        if len(entry_words) < SHORTEST:
            return _find_short(text, entry, entry_words, training, before)
        their_runs = _runs(training, SHINGLE)
        training_shared = _mark_shared(their_runs, set(runs))
        cut = len(training) > _STRETCH * len(entry_words)
        if cut:
            stretch = _densest(training_shared, _STRETCH * len(entry_words))
            before += stretch.start
            training = training[stretch.start : stretch.stop + SHINGLE - 1]
            their_runs, training_shared = their_runs[stretch], training_shared[stretch]
        shared = _mark_shared(runs, set(their_runs))
        their_copied = _runs(training, self.ngram)
        covered = _covered_share(
            _mark_shared(copied, set(their_copied)), self.ngram, len(entry_words)
        )
        aligned = _covered_share(shared, SHINGLE, len(entry_words))
        training_aligned, training_covered = aligned, 0.0
        if not cut:
            training_aligned = _covered_share(training_shared, SHINGLE, len(training))
            training_covered = _covered_share(
                _mark_shared(their_copied, set(copied)), self.ngram, len(training)
            )
        shorter_aligned = aligned if len(entry_words) <= len(training) else training_aligned
        if covered >= CONTAINED or (training_covered >= CONTAINED and covered >= PART):
            match_type = "contained"
        elif shorter_aligned >= NEAR and aligned >= PART:
            match_type = "near-duplicate"
        elif training_covered >= CONTAINED or covered * len(entry_words) >= EXCERPT_WORDS:
            match_type = "excerpt"
        else:
            return None
        measures = {"covered": covered, "aligned": shorter_aligned}
        start, end = self._columns.offsets[entry : entry + 2]
        hashes = WordColumns(self._columns.keys[start:end], np.array([0, end - start])).shingles()
        sharing = self._sharing[np.searchsorted(self._hashes, hashes)]
        boilerplate = float(np.mean(1 / sharing[shared])) <= 1 / BOILERPLATE
        at = before + int(np.argmax(training_shared))
        return Match(text, entry, match_type, measures, boilerplate, at)

    def _propose_pairs(self, columns: WordColumns) -> NDArray[np.int64]:
        """Return a row for each pair of texts worth comparing.

        A row has the training text, the evaluation text, and the first and last position of shared
        runs.
        """
        hashes = columns.shingles()
        positions = np.flatnonzero(self._filter[_filter_places(hashes)])
        slots = np.searchsorted(self._hashes, hashes[positions])
        slots[slots == len(self._hashes)] = 0
        is_known = (self._hashes[slots] == hashes[positions]) & self._proposing[slots]
        positions, slots = positions[is_known], slots[is_known]
        texts = columns.text_at(positions)
        inside = columns.inside(positions, texts)
        positions, slots, texts = positions[inside], slots[inside], texts[inside]
        counts = self._sharing[slots]
        total = np.cumsum(counts)
        if not len(total):
            return np.empty((0, 4), dtype=np.int64)
        within = np.arange(total[-1]) - np.repeat(total - counts, counts)
        entries = self._holders[np.repeat(self._starts[slots], counts) + within]
        hit = np.repeat(np.arange(len(positions)), counts)
        pair = texts[hit] * len(self) + entries
        order = np.argsort(pair, kind="stable")
        pair, hit = pair[order], hit[order]
        starts = np.flatnonzero(np.concatenate([[True], pair[1:] != pair[:-1]]))
        sizes = np.diff(np.concatenate([starts, [len(pair)]]))
        text, entry = np.divmod(pair[starts], len(self))
        entry_lengths = self._columns.lengths[entry]
        shorter = np.minimum(columns.lengths[text], entry_lengths)
        is_long = (shorter >= SHORTEST) & (sizes >= _needed_runs(shorter))
        is_short = (entry_lengths >= SHORTEST_CONTAINED) & (entry_lengths < SHORTEST)
        is_short &= (columns.lengths[text] > entry_lengths) & (sizes >= entry_lengths - SHINGLE + 1)
        proposals = np.flatnonzero(is_long | is_short)
        text_starts = columns.offsets[text[proposals]]
        first = positions[hit[starts[proposals]]] - text_starts
        last = positions[hit[starts[proposals] + sizes[proposals] - 1]] - text_starts
        return np.stack([text[proposals], entry[proposals], first, last], axis=1)

    def _entry(self, entry: int) -> tuple[Words, list[Words], list[Words]]:
        """Return an evaluation text's words, runs of three words and runs of n words; cached."""
        if entry not in self._known:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            entry_words = tuple(words(self.texts[entry]))
            self._known[entry] = (
                entry_words,
                _runs(entry_words, SHINGLE),
                _runs(entry_words, self.ngram),
            )
        return self._known[entry]


def _find_short(text: int, entry: int, words: Words, training: Words, before: int) -> Match | None:
    """Return a match if a training text contains a short evaluation text word for word."""
    runs = _runs(training, len(words))
    if words not in runs:
        return None
    measures = {"covered": 1.0, "aligned": 1.0}
    return Match(text, entry, "contained", measures, at=before + runs.index(words), short=True)


def _needed_runs(lengths: Places) -> NDArray[np.float64]:
    """Return how many shared runs make a pair worth comparing, by the shorter text's length."""
    needed: NDArray[np.float64] = np.clip(np.ceil(_RUNS_PER_WORD * lengths), _FEWEST, _MOST)
    return needed


def _filter_places(hashes: Hashes) -> Places:
    return (hashes >> np.uint64(64 - _FILTER_BITS)).view(np.int64)


def _runs(sequence: Words, size: int) -> list[Words]:
    """Return all runs of `size` words, in order; a shorter text counts as one run."""
    size = min(size, len(sequence))
    return list(zip(*(sequence[start:] for start in range(size)), strict=False))


def _mark_shared(runs: Sequence[Words], other_runs: set[Words]) -> NDArray[np.bool_]:
    return np.fromiter((run in other_runs for run in runs), dtype=bool, count=len(runs))


def _densest(shared: NDArray[np.bool_], size: int) -> slice:
    """Return the stretch of `size` positions with the most shared runs."""
    total = np.concatenate([[0], np.cumsum(shared)])
    start = int(np.argmax(total[size:] - total[:-size])) if len(total) > size else 0
    return slice(start, start + size)


def _covered_share(shared: NDArray[np.bool_], size: int, length: int) -> float:
    """Return the share of a text's words that are inside shared runs."""
    size = min(size, length)
    change = np.zeros(length + 1, dtype=np.int64)
    change[: len(shared)] += shared
    change[size : size + len(shared)] -= shared
    return float((np.cumsum(change)[:length] > 0).mean())


def words(text: str) -> list[str]:
    """Return the words that are compared: NFKC, case folded, letters and digits only."""
    return WORDS.findall(unicodedata.normalize("NFKC", text).casefold())


@dataclass(frozen=True, eq=False)
class WordColumns:
    """The words of texts as numbers; text `i` is `keys[offsets[i]:offsets[i + 1]]`."""

    keys: Hashes
    offsets: Places

    @cached_property
    def lengths(self) -> Places:
        """The number of words of each text."""
        return np.diff(self.offsets)

    def shingles(self) -> Hashes:
        """Return the hash of the run of three words that begins at each word but the last two.

        Some of these runs reach into the next text; `inside` tells which do not.
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

    def text_at(self, positions: Places) -> Places:
        """Return the index of the text to which the word at each position belongs."""
        return np.searchsorted(self.offsets, positions, side="right") - 1

    def inside(self, positions: Places, texts: Places) -> NDArray[np.bool_]:
        """Return whether the shingle at each position ends in the text in which it begins."""
        within: NDArray[np.bool_] = positions + SHINGLE <= self.offsets[texts + 1]
        return within

    def whole(self) -> Hashes:
        """Return a hash of each text as a whole, which depends on the order of its words."""
        position = np.arange(len(self.keys), dtype=np.uint64)
        position -= np.repeat(self.offsets[:-1], self.lengths).astype(np.uint64)
        turned = (self.keys + position * _FIRST) * _SECOND
        turned ^= turned >> _HALF
        turned *= _LAST
        total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(turned, dtype=np.uint64)])
        sums: Hashes = total[self.offsets[1:]] - total[self.offsets[:-1]]
        return sums


def word_columns(texts: Sequence[str]) -> WordColumns:
    """Return the words of texts as 64-bit numbers."""
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
