"""Which training texts hold an evaluation text, whole, in part or with words changed.

An index of the evaluation's three-word runs proposes pairs of texts; every pair is then compared
word by word, and only what that comparison shows is reported. All shares are of words:

covered   words that stand in both texts inside equal runs of `ngram` words
aligned   words that stand in both texts inside equal runs of three words

| kind           | of the two texts                                                           |
|----------------|----------------------------------------------------------------------------|
| exact          | the same words in the same order                                           |
| contained      | 90 % of the evaluation text is covered; or 90 % of the training text is,   |
|                | and that is at least half of the evaluation text                           |
| near-duplicate | 70 % of the shorter text is aligned, and at least half of the evaluation   |
| excerpt        | less of the evaluation text, but 90 % of the training text or 50 words are |
|                | covered                                                                    |

Texts under eight words count as exact only. Words that many evaluation texts share weigh less: a
match whose runs stand in five evaluation texts or more on (harmonic) average is boilerplate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from r2med.audit.exclusions import words
from r2med.audit.shingles import SHINGLE, Hashes, Places, WordColumns, word_columns

Kind = Literal["exact", "contained", "near-duplicate", "excerpt"]
Words = tuple[str, ...]

#: Texts with fewer words count only as exact.
SHORTEST = 8
#: Words in a run that counts as copied, unless chosen otherwise.
NGRAM = 8
NGRAMS = range(8, 14)
CONTAINED, NEAR, PART = 0.9, 0.7, 0.5
EXCERPT_WORDS = 50
BOILERPLATE = 5
#: A training text is compared over a stretch of at most so many times the evaluation text.
_STRETCH = 2
#: Runs of three that more evaluation texts share propose no pair.
_COMMON = 64
#: Equal runs that make a pair worth comparing: what `NEAR` needs at least, `EXCERPT_WORDS` at most.
_RUNS_PER_WORD = NEAR / SHINGLE
_FEWEST, _MOST = 2, 32
_FILTER_BITS = 24
_KNOWN = 4096


@dataclass(frozen=True)
class Match:
    """Training text `text` matches evaluation text `entry`: both are places in lists."""

    text: int
    entry: int
    kind: str
    measures: Mapping[str, float] = field(default_factory=dict)
    boilerplate: bool = False
    at: int = 0
    """The word of the training text at which the shared words begin."""


@dataclass(frozen=True)
class Overlap:
    """What two texts share, verified on their words."""

    kind: Kind
    covered: float
    """Share of the evaluation text in equal runs of n words."""
    aligned: float
    """Share of the shorter text in equal runs of three words."""
    jaccard: float
    """Equal runs of three words, of all that either text has."""
    weight: float
    """1 where no other evaluation text has the shared runs; 1/n where n have them."""
    at: int = 0
    """The first word of the training text that is shared."""

    def match(self, text: int, entry: int, before: int = 0) -> Match:
        """The same as a match of two texts; `before` words of the training text were left out."""
        measures = {name: getattr(self, name) for name in ("covered", "aligned", "jaccard")}
        common = self.kind != "exact" and self.weight <= 1 / BOILERPLATE
        return Match(text, entry, self.kind, measures, common, before + self.at)


@dataclass(frozen=True)
class _Known:
    words: Words
    runs: list[Words]
    copied: list[Words]


class Index:
    """Evaluation texts, ready to be looked for; the texts must be distinct in their words."""

    def __init__(self, texts: Sequence[str], *, ngram: int = NGRAM) -> None:
        self.texts = list(texts)
        self.ngram = ngram
        columns = word_columns(self.texts)
        self.lengths = columns.lengths
        self._whole = columns.whole()
        self._by_whole = np.argsort(self._whole)
        hashes, holders = _shingles(columns)
        pairs = np.lexsort((holders, hashes))
        hashes, holders = hashes[pairs], holders[pairs]
        first = np.ones(len(hashes), dtype=bool)
        first[1:] = (hashes[1:] != hashes[:-1]) | (holders[1:] != holders[:-1])
        hashes, holders = hashes[first], holders[first]
        self._hashes, starts, self._sharing = np.unique(
            hashes, return_index=True, return_counts=True
        )
        self._starts, self._holders = starts.astype(np.int64), holders.astype(np.int32)
        self._filter = np.zeros(1 << _FILTER_BITS, dtype=bool)
        rare = self._sharing <= _COMMON
        self._filter[(self._hashes[rare] >> np.uint64(64 - _FILTER_BITS)).view(np.int64)] = True
        self._columns = columns
        self._known: dict[int, _Known] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def matches(self, texts: Sequence[str]) -> list[Match]:
        """All verified matches of some training texts, ordered by text and entry."""
        columns = word_columns(texts)
        exact = self._exact(columns)
        matches = []
        for text, entry in sorted(exact):
            if tuple(words(texts[text])) == self._entry(entry).words:
                matches.append(_SAME.match(text, entry))
        same = {(match.text, match.entry) for match in matches}
        for text, proposed in _grouped(self._proposed(columns)):
            sequence = tuple(words(texts[text]))
            for entry, first, last in proposed:
                if (text, entry) in same:
                    continue
                reach = _STRETCH * int(self.lengths[entry])
                before = max(first - reach, 0)
                near = sequence[before : last + SHINGLE + reach]
                overlap = self.compared(entry, near)
                if overlap is not None:
                    matches.append(overlap.match(text, entry, before))
        return sorted(matches, key=lambda match: (match.text, match.entry))

    def compared(self, entry: int, training: Words) -> Overlap | None:
        """What an evaluation text shares with the words of a training text, if it counts.

        Of a training text over twice as long, only the stretch with most of the shared runs.
        """
        known = self._entry(entry)
        own, runs, copied = known.words, known.runs, known.copied
        if min(len(own), len(training)) < SHORTEST:
            return _SAME if own == training else None
        distinct = set(runs)
        their_runs = _runs(training, SHINGLE)
        training_shared = _shared(their_runs, distinct)
        cut, start = len(training) > _STRETCH * len(own), 0
        if cut:
            stretch = _densest(training_shared, _STRETCH * len(own))
            start = stretch.start
            training = training[start : stretch.stop + SHINGLE - 1]
            their_runs, training_shared = their_runs[stretch], training_shared[stretch]
        theirs = set(their_runs)
        shared = _shared(runs, theirs)
        if not shared.any():
            return None
        their_copied = _runs(training, self.ngram)
        covered = _covered(_shared(copied, set(their_copied)), self.ngram, len(own))
        aligned = _covered(shared, SHINGLE, len(own))
        training_aligned, training_covered = aligned, 0.0
        if not cut:
            training_aligned = _covered(training_shared, SHINGLE, len(training))
            training_covered = _covered(
                _shared(their_copied, set(copied)), self.ngram, len(training)
            )
        shorter_aligned = aligned if len(own) <= len(training) else training_aligned
        kind: Kind
        if own == training:
            kind = "exact"
        elif covered >= CONTAINED or (training_covered >= CONTAINED and covered >= PART):
            kind = "contained"
        elif shorter_aligned >= NEAR and aligned >= PART:
            kind = "near-duplicate"
        elif training_covered >= CONTAINED or covered * len(own) >= EXCERPT_WORDS:
            kind = "excerpt"
        else:
            return None
        equal = len(distinct & theirs)
        jaccard = equal / (len(distinct) + len(theirs) - equal)
        weight = float(np.mean(1 / self._sharing_of(entry)[shared]))
        at = start + int(np.argmax(training_shared))
        return Overlap(kind, covered, shorter_aligned, jaccard, weight, at)

    def _exact(self, columns: WordColumns) -> list[tuple[int, int]]:
        whole = columns.whole()
        ordered = self._whole[self._by_whole]
        low = np.searchsorted(ordered, whole, side="left")
        high = np.searchsorted(ordered, whole, side="right")
        hits = np.flatnonzero((high > low) & (columns.lengths > 0))
        return [
            (int(text), int(self._by_whole[place]))
            for text in hits
            for place in range(low[text], high[text])
        ]

    def _proposed(self, columns: WordColumns) -> NDArray[np.int64]:
        """Rows of text, entry, first and last place of a shared run, for pairs worth comparing."""
        hashes = columns.shingles()
        places = np.flatnonzero(
            self._filter[(hashes >> np.uint64(64 - _FILTER_BITS)).view(np.int64)]
        )
        slots = np.searchsorted(self._hashes, hashes[places])
        slots[slots == len(self._hashes)] = 0
        known = self._hashes[slots] == hashes[places] if len(self._hashes) else slots > 0
        known &= self._sharing[slots] <= _COMMON if len(self._hashes) else known
        places, slots = places[known], slots[known]
        texts = columns.text_at(places)
        inside = columns.inside(places, texts)
        places, slots, texts = places[inside], slots[inside], texts[inside]
        counts = self._sharing[slots]
        total = np.cumsum(counts)
        if not len(total):
            return np.empty((0, 4), dtype=np.int64)
        within = np.arange(total[-1]) - np.repeat(total - counts, counts)
        entries = self._holders[np.repeat(self._starts[slots], counts) + within]
        hit = np.repeat(np.arange(len(places)), counts)
        pair = texts[hit] * len(self) + entries
        order = np.argsort(pair, kind="stable")
        pair, hit = pair[order], hit[order]
        starts = np.flatnonzero(np.concatenate([[True], pair[1:] != pair[:-1]]))
        sizes = np.diff(np.concatenate([starts, [len(pair)]]))
        text, entry = np.divmod(pair[starts], len(self))
        shorter = np.minimum(columns.lengths[text], self.lengths[entry])
        needed = np.clip(np.ceil(_RUNS_PER_WORD * shorter), _FEWEST, _MOST)
        kept = np.flatnonzero((sizes >= needed) & (shorter >= SHORTEST))
        own = columns.offsets[text[kept]]
        first = places[hit[starts[kept]]] - own
        last = places[hit[starts[kept] + sizes[kept] - 1]] - own
        return np.stack([text[kept], entry[kept], first, last], axis=1)

    def _sharing_of(self, entry: int) -> NDArray[np.int64]:
        """For each run of an entry, how many evaluation texts have it."""
        start, end = self._columns.offsets[entry : entry + 2]
        hashes = WordColumns(self._columns.keys[start:end], np.array([0, end - start])).shingles()
        sharing: NDArray[np.int64] = self._sharing[np.searchsorted(self._hashes, hashes)]
        return sharing

    def _entry(self, entry: int) -> _Known:
        """The words of an evaluation text and their runs, made once while there is room."""
        if entry not in self._known:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            own = tuple(words(self.texts[entry]))
            self._known[entry] = _Known(own, _runs(own, SHINGLE), _runs(own, self.ngram))
        return self._known[entry]


_SAME = Overlap("exact", 1.0, 1.0, 1.0, 1.0)


def _shingles(columns: WordColumns) -> tuple[Hashes, Places]:
    hashes = columns.shingles()
    places = np.arange(len(hashes))
    texts = columns.text_at(places)
    inside = columns.inside(places, texts)
    return hashes[inside], texts[inside]


def _grouped(
    proposed: NDArray[np.int64],
) -> Iterable[tuple[int, list[tuple[int, int, int]]]]:
    groups: dict[int, list[tuple[int, int, int]]] = {}
    for text, entry, first, last in proposed.tolist():
        groups.setdefault(text, []).append((entry, first, last))
    return groups.items()


def _runs(sequence: Words, size: int) -> list[Words]:
    """All runs of so many words, in order; a shorter text counts as one run."""
    size = min(size, len(sequence))
    return list(zip(*(sequence[start:] for start in range(size)), strict=False))


def _shared(runs: Sequence[Words], others: set[Words]) -> NDArray[np.bool_]:
    return np.fromiter((run in others for run in runs), dtype=bool, count=len(runs))


def _densest(shared: NDArray[np.bool_], size: int) -> slice:
    """The stretch of so many places that holds most of the shared ones."""
    total = np.concatenate([[0], np.cumsum(shared)])
    start = int(np.argmax(total[size:] - total[:-size])) if len(total) > size else 0
    return slice(start, start + size)


def _covered(shared: NDArray[np.bool_], size: int, length: int) -> float:
    """The share of words that stand in one of the shared runs."""
    size = min(size, length)
    change = np.zeros(length + 1, dtype=np.int64)
    change[: len(shared)] += shared
    change[size : size + len(shared)] -= shared
    return float((np.cumsum(change)[:length] > 0).mean())
