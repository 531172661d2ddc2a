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

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.bm25.words import ByteWords
from r2med.runs.run import offsets_of

Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]
Letters = NDArray[np.uint8] | NDArray[np.uint16]
Dialect = Literal["martin", "nltk"]

_TAIL = 8
_VOWELS = np.zeros(1 << 16, dtype=np.bool_)
_VOWELS[[ord(letter) for letter in "aeiou"]] = True
_MASKS = np.array([(1 << 8 * kept) - 1 for kept in range(9)], dtype=np.uint64)
#: Matrix widths: words up to one of these lengths are stemmed together.
_WIDTHS = (8, 12, 16, 24, 48, 256)


def stem_words(words: ByteWords, dialect: Dialect) -> ByteWords:
    """Stem lower-case words of which every letter is one number.

    A stem is never longer than its word: a restored `e` takes the place of -ed or -ing.
    """
    data, starts, lengths = words.data.copy(), words.offsets[:-1], words.lengths
    last = data[words.offsets[1:] - 1]
    stemmable = (lengths > 2) & (last >= ord("a")) & (last <= ord("z"))
    edges = [2, *_WIDTHS, max(int(lengths.max(initial=0)), _WIDTHS[-1])]
    for shortest, width in pairwise(edges):
        chosen = np.flatnonzero(stemmable & (lengths > shortest) & (lengths <= width))
        if len(chosen):
            position = np.arange(int(lengths[chosen].max()))[:, None]
            places = starts[chosen] + position
            matrix = WordMatrix(data[np.minimum(places, len(data) - 1)], lengths[chosen], dialect)
            stem(matrix)
            inside = position < matrix.lengths
            data[places[inside]] = matrix.letters[inside]
            lengths[chosen] = matrix.lengths
    return ByteWords.cut(data, starts, starts + lengths)


def stem_text(words: list[str], dialect: Dialect) -> list[str]:
    """Stem lower-case words of any script, in UTF-16 units as Java sees them."""
    units = [np.frombuffer(word.encode("utf-16-le"), dtype=np.uint16) for word in words]
    data = np.concatenate([np.empty(0, dtype=np.uint16), *units])
    stemmed = stem_words(ByteWords(data, offsets_of([len(word) for word in units])), dialect)
    bounds = pairwise(stemmed.offsets)
    return [stemmed.data[first:last].tobytes().decode("utf-16-le") for first, last in bounds]


class WordMatrix:
    """Words of like length; rows are changed in place by replacing suffixes."""

    def __init__(self, letters: Letters, lengths: Rows, dialect: Dialect) -> None:
        """Take letters as (position, word); beyond a word's end they do not matter."""
        self._padded = np.zeros((_TAIL + len(letters), len(lengths)), dtype=letters.dtype)
        self.letters = self._padded[_TAIL:]
        self.letters[:] = letters
        self.lengths = lengths
        self.nltk = dialect == "nltk"
        self.tails = self._last_letters(np.arange(len(lengths)))

    def split(self, rows: Rows, suffix: str) -> tuple[Rows, Rows]:
        """Those of the rows whose word ends so, and the others."""
        ends: Flags = self.tails[rows] & _MASKS[len(suffix)] == _number(suffix)
        return rows[ends], rows[~ends]

    def replace(self, rows: Rows, removed: int | Rows, added: str) -> None:
        """Take `removed` letters from the end of each row's word, then add some."""
        if not len(rows):
            return
        kept = self.lengths[rows] - removed
        for place, letter in enumerate(added):
            self.letters[kept + place, rows] = ord(letter)
        self.lengths[rows] = kept + len(added)
        self.tails[rows] = self._last_letters(rows)

    def replace_suffix(self, rows: Rows, suffix: str, replacement: str) -> Rows:
        """Replace the suffix where it stands; return the rows without it."""
        ending, rest = self.split(rows, suffix)
        self.replace(ending, len(suffix), replacement)
        return rest

    def measures(self, rows: Rows, removed: int | Rows) -> Rows:
        """How often a consonant follows a vowel in the words less their last `removed` letters."""
        lengths = self.lengths[rows] - removed
        counts = np.zeros(len(rows), dtype=np.int64)
        was_vowel = np.zeros(len(rows), dtype=np.bool_)
        for place, vowel in enumerate(self._vowels(rows, lengths)):
            counts += was_vowel & ~vowel & (place < lengths)
            was_vowel = vowel
        return counts

    def has_vowel(self, rows: Rows, removed: int | Rows) -> Flags:
        """Whether the words less their last `removed` letters hold a vowel."""
        lengths = self.lengths[rows] - removed
        held = np.zeros(len(rows), dtype=np.bool_)
        for place, vowel in enumerate(self._vowels(rows, lengths)):
            held |= vowel & (place < lengths)
        return held

    def letter(self, rows: Rows, back: int) -> Letters:
        """The letter before the last `back` ones of each row's word, or its first."""
        return self.letters[np.maximum(self.lengths[rows] - back - 1, 0), rows]

    def consonant(self, rows: Rows, back: int) -> Flags:
        """Whether the letter before the last `back` ones is there and a consonant."""
        place = self.lengths[rows] - back - 1
        letter = self.letter(rows, back)
        is_consonant = ~_VOWELS[letter]
        ys = np.flatnonzero((letter == ord("y")) & (place > 0))
        if len(ys):
            is_consonant[ys] = ~self.consonant(rows[ys], back + 1)
        return is_consonant & (place >= 0)

    def short_syllable(self, rows: Rows, removed: int) -> Flags:
        """Whether consonant, vowel, consonant other than w, x or y end the shortened words.

        For NLTK, a word of just vowel and consonant is short too.
        """
        left = self.lengths[rows] - removed
        last, middle, first = (self.consonant(rows, removed + back) for back in range(3))
        open_end = np.isin(self.letter(rows, removed), [ord(one) for one in "wxy"])
        short = (left > 2) & last & ~middle & first & ~open_end
        return short | (left == 2) & last & ~middle if self.nltk else short

    def _vowels(self, rows: Rows, lengths: Rows) -> Iterator[Flags]:
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


def _number(suffix: str) -> np.uint64:
    return np.uint64(int.from_bytes(suffix.encode("ascii"), "big"))


_Rules = tuple[list[str], Rows, NDArray[np.str_]]
"""Suffixes, how many letters of each are taken away, and what is put there instead."""


def _rules(text: str) -> _Rules:
    """Read `suffix>replacement` words; what stands before a bar must precede the suffix."""
    pairs = [rule.split(">") for rule in text.split()]
    removed = [len(suffix.rpartition("|")[2]) for suffix, _ in pairs]
    suffixes = [suffix.replace("|", "") for suffix, _ in pairs]
    return suffixes, np.array(removed), np.array([added for _, added in pairs])


_STEP_2 = (
    "ational>ate tional>tion enci>ence anci>ance izer>ize bli>ble alli>al entli>ent eli>e "
    "ousli>ous ization>ize ation>ate ator>ate alism>al iveness>ive fulness>ful ousness>ous "
    "aliti>al iviti>ive biliti>ble "
)
_MARTIN_STEP_2 = _rules(_STEP_2 + "logi>log")
_NLTK_STEP_2 = _rules(_STEP_2 + "fulli>ful")
_STEP_3 = _rules("icate>ic ative> alize>al iciti>ic ical>ic ful> ness>")
_STEP_4 = _rules(
    "al> ance> ence> er> ic> able> ible> ant> ement> ment> ent> s|ion> t|ion> ou> ism> ate> iti> "
    "ous> ive> ize>"
)
_NLTK_IRREGULAR = {
    "skies": "sky", "sky": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news",
    "innings": "inning", "inning": "inning", "outings": "outing", "outing": "outing",
    "cannings": "canning", "canning": "canning", "howe": "howe", "proceed": "proceed",
    "exceed": "exceed", "succeed": "succeed",
}  # fmt: skip


def stem(words: WordMatrix) -> None:
    """Stem lower-case words in place; those of one or two letters stay as they are."""
    active = words.lengths > 2
    for word, fixed in _NLTK_IRREGULAR.items() if words.nltk else ():
        rows = np.flatnonzero((words.tails == _number(word)) & (words.lengths == len(word)))
        words.replace(rows, len(word), fixed)
        active[rows] = False
    rows = np.flatnonzero(active)
    _plurals(words, rows)
    _participles(words, rows)
    final_y, _ = words.split(rows, "y")
    after = (words.lengths[final_y] > 2) & words.consonant(final_y, 1)
    words.replace(final_y[after if words.nltk else words.has_vowel(final_y, 1)], 1, "i")
    _double_suffixes(words, rows)
    _apply(words, rows, _STEP_3)
    _apply(words, rows, _STEP_4, above=1)
    final_e, _ = words.split(rows, "e")
    measures = words.measures(final_e, 1)
    kept = (measures == 1) & words.short_syllable(final_e, 1)
    words.replace(final_e[(measures > 0) & ~kept], 1, "")
    double_l, _ = words.split(rows, "ll")
    words.replace(double_l[words.measures(double_l, 1) > 1], 1, "")


def _plurals(words: WordMatrix, rows: Rows) -> None:
    rows, _ = words.split(rows, "s")
    if words.nltk:
        ies, others = words.split(rows, "ies")
        short = words.lengths[ies] == 4
        words.replace(ies[short], 3, "ie")
        rows = np.concatenate([others, ies[~short]])
    for suffix, replacement in (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")):
        rows = words.replace_suffix(rows, suffix, replacement)


def _participles(words: WordMatrix, rows: Rows) -> None:
    if words.nltk:
        ied, rows = words.split(rows, "ied")
        short = words.lengths[ied] == 4
        words.replace(ied[short], 3, "ie")
        words.replace(ied[~short], 3, "i")
    eed, rows = words.split(rows, "eed")
    words.replace(eed[words.measures(eed, 3) > 0], 1, "")
    endings = [words.split(rows, suffix)[0] for suffix in ("ed", "ing")]
    removed = np.repeat([2, 3], [len(part) for part in endings])
    rows = np.concatenate(endings)
    vowel = words.has_vowel(rows, removed)
    words.replace(rows[vowel], removed[vowel], "")
    _restore(words, rows[vowel])


def _restore(words: WordMatrix, rows: Rows) -> None:
    """Repair what removing -ed or -ing left: conflat-, hopp-, fil-."""
    for suffix in ("at", "bl", "iz"):
        rows = words.replace_suffix(rows, suffix, suffix + "e")
    last = words.letter(rows, 0)
    same = np.equal(last, words.letter(rows, 1)) & (words.lengths[rows] > 1)
    double = same & words.consonant(rows, 0)
    words.replace(rows[double & ~np.isin(last, [ord(one) for one in "lsz"])], 1, "")
    rows = rows[~double]
    rows = rows[words.short_syllable(rows, 0)]
    words.replace(rows[words.measures(rows, 0) == 1], 0, "e")


def _double_suffixes(words: WordMatrix, rows: Rows) -> None:
    if not words.nltk:
        _apply(words, rows, _MARTIN_STEP_2)
        return
    alli, _ = words.split(rows, "alli")
    words.replace(alli[words.measures(alli, 4) > 0], 2, "")
    logi, rows = words.split(rows, "logi")
    words.replace(logi[words.measures(logi, 3) > 0], 1, "")
    _apply(words, rows, _NLTK_STEP_2)


def _apply(words: WordMatrix, rows: Rows, rules: _Rules, *, above: int = 0) -> None:
    """Replace the first suffix that fits, where the stem measures more than `above`."""
    suffixes, letters, replacements = rules
    tails, rule = words.tails[rows], np.full(len(rows), -1, dtype=np.int64)
    for place, suffix in reversed(list(enumerate(suffixes))):
        rule[tails & _MASKS[len(suffix)] == _number(suffix)] = place
    rows, rule = rows[rule >= 0], rule[rule >= 0]
    removed = letters[rule]
    enough = words.measures(rows, removed) > above
    for replacement in np.unique(replacements):
        chosen = enough & (replacements == replacement)[rule]
        words.replace(rows[chosen], removed[chosen], str(replacement))
