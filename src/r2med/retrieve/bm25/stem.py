"""Porter's stemmer over a whole vocabulary at once, in its two dialects in circulation.

Written by hand because every stemmer in Python takes one word at a time and none has both
dialects; here a step of the algorithm is a handful of array operations on all words that end
alike. `martin` is Porter's own later program, which Lucene uses (and NLTK calls
MARTIN_EXTENSIONS); `nltk` is NLTK's default.

Words are held as matrices of letters, column-major: letter `p` of all words lies together, so
that a question about one position of many words is one array operation. Letters are bytes, or
UTF-16 units where words need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.bm25.words import ByteWords

Rows = NDArray[np.int64]
Letters = NDArray[np.uint8] | NDArray[np.uint16]

_TAIL = 8
_VOWELS = np.zeros(1 << 16, dtype=np.bool_)
_VOWELS[[ord(letter) for letter in "aeiou"]] = True
_MASKS = np.array([(1 << 8 * kept) - 1 for kept in range(9)], dtype=np.uint64)


class WordMatrix:
    """Words of like length; rows are changed in place by replacing suffixes."""

    def __init__(self, letters: Letters, lengths: Rows) -> None:
        """Take letters as (position, word); beyond a word's end they do not matter."""
        self._padded = np.zeros((_TAIL + len(letters), len(lengths)), dtype=letters.dtype)
        self.letters = self._padded[_TAIL:]
        self.letters[:] = letters
        self.lengths = lengths
        self._tails = self._last_letters(np.arange(len(lengths)))

    def __len__(self) -> int:
        return len(self.lengths)

    def equal(self, word: str) -> Rows:
        """The rows that are this word, of eight letters at most."""
        return np.flatnonzero((self._tails == _number(word)) & (self.lengths == len(word)))

    def ends(self, rows: Rows, suffix: str) -> NDArray[np.bool_]:
        """Whether each row's word ends so."""
        tails: NDArray[np.uint64] = self._tails[rows] & _MASKS[len(suffix)]
        ends: NDArray[np.bool_] = tails == np.uint64(_number(suffix))
        return ends

    def first_ending(self, rows: Rows, suffixes: Sequence[str]) -> tuple[Rows, Rows]:
        """The rows whose word ends in one of the suffixes, and which is the first it has."""
        tails = self._tails[rows]
        first = np.full(len(rows), -1, dtype=np.int64)
        for place in reversed(range(len(suffixes))):
            suffix = suffixes[place]
            first[tails & _MASKS[len(suffix)] == _number(suffix)] = place
        met = first >= 0
        return rows[met], first[met]

    def ending(self, rows: Rows, suffix: str) -> Rows:
        """Those of the rows whose word ends so."""
        return rows[self.ends(rows, suffix)]

    def split_by_ending(self, rows: Rows, suffix: str) -> tuple[Rows, Rows]:
        """Those of the rows whose word ends so, and the others."""
        ends = self.ends(rows, suffix)
        return rows[ends], rows[~ends]

    def replace_suffix(self, rows: Rows, suffix: str, replacement: str) -> Rows:
        """Replace the suffix where it stands; return the rows without it."""
        found, rest = self.split_by_ending(rows, suffix)
        self.replace(found, len(suffix), replacement)
        return rest

    def replace(self, rows: Rows, removed: int | Rows, added: str) -> None:
        """Take `removed` letters from the end of each row's word, then add some."""
        if not len(rows):
            return
        kept = self.lengths[rows] - removed
        for place, letter in enumerate(added):
            self.letters[kept + place, rows] = ord(letter)
        self.lengths[rows] = kept + len(added)
        self._tails[rows] = self._last_letters(rows)

    def measures(self, rows: Rows, removed: int | Rows) -> Rows:
        """How often a consonant follows a vowel in the words less their last `removed` letters."""
        lengths = self.lengths[rows] - removed
        counts = np.zeros(len(rows), dtype=np.int64)
        was_vowel = np.zeros(len(rows), dtype=np.bool_)
        for place, vowel in enumerate(self._vowels(rows, lengths)):
            counts += was_vowel & ~vowel & (place < lengths)
            was_vowel = vowel
        return counts

    def has_vowel(self, rows: Rows, removed: int | Rows) -> NDArray[np.bool_]:
        """Whether the words less their last `removed` letters hold a vowel."""
        lengths = self.lengths[rows] - removed
        found = np.zeros(len(rows), dtype=np.bool_)
        for place, vowel in enumerate(self._vowels(rows, lengths)):
            found |= vowel & (place < lengths)
        return found

    def consonant(self, rows: Rows, removed: int) -> NDArray[np.bool_]:
        """Whether the letter before the last `removed` ones is there and a consonant."""
        place = self.lengths[rows] - removed - 1
        letter = self.letters[np.maximum(place, 0), rows]
        is_consonant = ~_VOWELS[letter]
        ys = np.flatnonzero((letter == ord("y")) & (place > 0))
        if len(ys):
            is_consonant[ys] = ~self.consonant(rows[ys], removed + 1)
        return is_consonant & (place >= 0)

    def double_consonant(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether the last two letters are the same consonant."""
        last = self.lengths[rows] - 1
        before = self.letters[np.maximum(last - 1, 0), rows]
        same = np.equal(self.letters[last, rows], before)
        return same & (last > 0) & self.consonant(rows, 0)

    def last_is(self, rows: Rows, letters: str) -> NDArray[np.bool_]:
        """Whether the last letter is one of these."""
        return np.isin(self.letters[self.lengths[rows] - 1, rows], [ord(one) for one in letters])

    def short_syllable(self, rows: Rows, removed: int, *, extended: bool) -> NDArray[np.bool_]:
        """Whether consonant, vowel, consonant other than w, x or y end the shortened words.

        Extended (NLTK), a word of just vowel and consonant is short too.
        """
        left = self.lengths[rows] - removed
        last, middle, first = (self.consonant(rows, removed + back) for back in range(3))
        end = self.letters[np.maximum(left - 1, 0), rows]
        open_end = np.isin(end, [ord(one) for one in "wxy"])
        short = (left > 2) & last & ~middle & first & ~open_end
        return short | (left == 2) & last & ~middle if extended else short

    def _vowels(self, rows: Rows, lengths: Rows) -> Iterator[NDArray[np.bool_]]:
        """For each position, which rows have a vowel there (beyond a word's end: anything)."""
        vowel = np.ones(len(rows), dtype=np.bool_)
        for place in range(int(lengths.max(initial=0))):
            letter = self.letters[place][rows]
            vowel = _VOWELS[letter] | (letter == ord("y")) & ~vowel
            yield vowel

    def _last_letters(self, rows: Rows) -> NDArray[np.uint64]:
        """The last eight letters in one number, the last one lowest; none fits beyond ASCII."""
        tails = np.zeros(len(rows), dtype=np.uint64)
        place = self.lengths[rows] + _TAIL
        for back in range(_TAIL):
            place -= 1
            letter = np.minimum(self._padded[place, rows], 255).astype(np.uint64)
            tails |= letter << np.uint64(8 * back)
        return tails


def _number(suffix: str) -> int:
    return int.from_bytes(suffix.encode("ascii"), "big")


Dialect = Literal["martin", "nltk"]


@dataclass(frozen=True)
class _Rules:
    """Suffixes, how many letters of each are taken away, and what is put there instead."""

    suffixes: tuple[str, ...]
    removed: NDArray[np.int64]
    added: NDArray[np.str_]

    @classmethod
    def of(cls, text: str) -> _Rules:
        """Read `suffix>replacement` words; what stands before a bar must precede the suffix."""
        pairs = [rule.split(">") for rule in text.split()]
        removed = [len(suffix.rpartition("|")[2]) for suffix, _ in pairs]
        suffixes = tuple(suffix.replace("|", "") for suffix, _ in pairs)
        return cls(suffixes, np.array(removed), np.array([added for _, added in pairs]))


_STEP_2 = (
    "ational>ate tional>tion enci>ence anci>ance izer>ize bli>ble alli>al entli>ent eli>e "
    "ousli>ous ization>ize ation>ate ator>ate alism>al iveness>ive fulness>ful ousness>ous "
    "aliti>al iviti>ive biliti>ble "
)
_MARTIN_STEP_2 = _Rules.of(_STEP_2 + "logi>log")
_NLTK_STEP_2 = _Rules.of(_STEP_2 + "fulli>ful")
_STEP_3 = _Rules.of("icate>ic ative> alize>al iciti>ic ical>ic ful> ness>")
_STEP_4 = _Rules.of(
    "al> ance> ence> er> ic> able> ible> ant> ement> ment> ent> s|ion> t|ion> ou> ism> ate> iti> "
    "ous> ive> ize>"
)
_NLTK_IRREGULAR = {
    "skies": "sky", "sky": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news",
    "innings": "inning", "inning": "inning", "outings": "outing", "outing": "outing",
    "cannings": "canning", "canning": "canning", "howe": "howe", "proceed": "proceed",
    "exceed": "exceed", "succeed": "succeed",
}  # fmt: skip


def stem(words: WordMatrix, dialect: Dialect) -> None:
    """Stem lower-case words in place; those of one or two letters stay as they are."""
    active = words.lengths > 2
    if dialect == "nltk":
        active &= ~_irregular(words)
    rows = np.flatnonzero(active)
    extended = dialect == "nltk"
    _plurals(words, rows, extended=extended)
    _participles(words, rows, extended=extended)
    _final_y(words, rows, extended=extended)
    _double_suffixes(words, rows, extended=extended)
    _apply(words, rows, _STEP_3)
    _apply(words, rows, _STEP_4, above=1)
    _final_e(words, rows, extended=extended)
    _final_double_l(words, rows)


def _irregular(words: WordMatrix) -> NDArray[np.bool_]:
    """Give NLTK's irregular words their fixed stems, and say which they are."""
    met = np.zeros(len(words), dtype=np.bool_)
    for word, fixed in _NLTK_IRREGULAR.items():
        rows = words.equal(word)
        words.replace(rows, len(word), fixed)
        met[rows] = True
    return met


def _plurals(words: WordMatrix, rows: Rows, *, extended: bool) -> None:
    rows = words.ending(rows, "s")
    if extended:
        short = (words.lengths[rows] == 4) & words.ends(rows, "ies")
        words.replace(rows[short], 3, "ie")
        rows = rows[~short]
    for suffix, replacement in (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")):
        rows = words.replace_suffix(rows, suffix, replacement)


def _participles(words: WordMatrix, rows: Rows, *, extended: bool) -> None:
    if extended:
        ied, rows = words.split_by_ending(rows, "ied")
        short = words.lengths[ied] == 4
        words.replace(ied[short], 3, "ie")
        words.replace(ied[~short], 3, "i")
    eed, rows = words.split_by_ending(rows, "eed")
    words.replace(eed[words.measures(eed, 3) > 0], 1, "")
    found = [words.ending(rows, suffix) for suffix in ("ed", "ing")]
    removed = np.repeat([2, 3], [len(part) for part in found])
    rows = np.concatenate(found)
    vowel = words.has_vowel(rows, removed)
    words.replace(rows[vowel], removed[vowel], "")
    _restore(words, rows[vowel], extended=extended)


def _restore(words: WordMatrix, rows: Rows, *, extended: bool) -> None:
    """Repair what removing -ed or -ing left: conflat-, hopp-, fil-."""
    for suffix in ("at", "bl", "iz"):
        rows = words.replace_suffix(rows, suffix, suffix + "e")
    double = words.double_consonant(rows)
    words.replace(rows[double & ~words.last_is(rows, "lsz")], 1, "")
    rows = rows[~double]
    rows = rows[words.short_syllable(rows, 0, extended=extended)]
    words.replace(rows[words.measures(rows, 0) == 1], 0, "e")


def _final_y(words: WordMatrix, rows: Rows, *, extended: bool) -> None:
    rows = words.ending(rows, "y")
    if extended:
        changing = (words.lengths[rows] > 2) & words.consonant(rows, 1)
    else:
        changing = words.has_vowel(rows, 1)
    words.replace(rows[changing], 1, "i")


def _double_suffixes(words: WordMatrix, rows: Rows, *, extended: bool) -> None:
    if not extended:
        _apply(words, rows, _MARTIN_STEP_2)
        return
    alli = words.ending(rows, "alli")
    words.replace(alli[words.measures(alli, 4) > 0], 2, "")
    logi, rows = words.split_by_ending(rows, "logi")
    words.replace(logi[words.measures(logi, 3) > 0], 1, "")
    _apply(words, rows, _NLTK_STEP_2)


def _apply(words: WordMatrix, rows: Rows, rules: _Rules, *, above: int = 0) -> None:
    """Replace the first suffix that fits, where the stem measures more than `above`."""
    rows, rule = words.first_ending(rows, rules.suffixes)
    removed = rules.removed[rule]
    enough = words.measures(rows, removed) > above
    for replacement in np.unique(rules.added):
        chosen = enough & (rules.added == replacement)[rule]
        words.replace(rows[chosen], removed[chosen], str(replacement))


def _final_e(words: WordMatrix, rows: Rows, *, extended: bool) -> None:
    rows = words.ending(rows, "e")
    measures = words.measures(rows, 1)
    kept = (measures == 1) & words.short_syllable(rows, 1, extended=extended)
    words.replace(rows[(measures > 0) & ~kept], 1, "")


def _final_double_l(words: WordMatrix, rows: Rows) -> None:
    rows = words.ending(rows, "ll")
    words.replace(rows[words.measures(rows, 1) > 1], 1, "")


Places = NDArray[np.int64]

_WIDTHS = (8, 12, 16, 24, 48, 256)
"""Matrix widths: words up to one of these lengths are stemmed together."""


def stem_ascii(words: ByteWords, dialect: Dialect) -> ByteWords:
    """Stem lower-case ASCII words."""
    data = words.data.copy()
    lengths = words.lengths
    last = data[words.offsets[1:] - 1]
    stemmable = (lengths > 2) & (last >= ord("a")) & (last <= ord("z"))
    edges = [2, *_WIDTHS, max(int(lengths.max(initial=0)), _WIDTHS[-1])]
    for shortest, width in pairwise(edges):
        chosen = np.flatnonzero(stemmable & (lengths > shortest) & (lengths <= width))
        if len(chosen):
            lengths[chosen] = _stem_matrix(data, words.offsets[chosen], lengths[chosen], dialect)
    return ByteWords.cut(data, words.offsets[:-1], words.offsets[:-1] + lengths)


def _stem_matrix(
    data: NDArray[np.uint8], starts: Places, lengths: Places, dialect: Dialect
) -> Places:
    """Stem words of like length where they stand; return their new lengths.

    A stem is never longer than its word: a restored `e` takes the place of -ed or -ing.
    """
    width = int(lengths.max())
    position = np.arange(width)[:, None]
    places = starts + position
    matrix = WordMatrix(data[np.minimum(places, len(data) - 1)], lengths.copy())
    stem(matrix, dialect)
    inside = position < matrix.lengths
    data[places[inside]] = matrix.letters[inside]
    return matrix.lengths


def stem_text(words: list[str], dialect: Dialect) -> list[str]:
    """Stem lower-case words of any script, in UTF-16 units as Java sees them."""
    if not words:
        return []
    units = [np.frombuffer(word.encode("utf-16-le"), dtype="<u2") for word in words]
    lengths = np.array([len(word) for word in units], dtype=np.int64)
    letters = np.zeros((int(lengths.max()), len(words)), dtype=np.uint16)
    for row, word in enumerate(units):
        letters[: len(word), row] = word
    matrix = WordMatrix(letters, lengths)
    stem(matrix, dialect)
    return [
        matrix.letters[: matrix.lengths[row], row].tobytes().decode("utf-16-le")
        for row in range(len(words))
    ]
