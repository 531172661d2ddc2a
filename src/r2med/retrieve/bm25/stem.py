"""Porter's stemmer for a whole vocabulary at once, in the two dialects that are in use.

Written by hand because the stemmers in Python take one word at a time and none has both dialects.
Here a step of the algorithm is a few array operations on all words with the same ending. `martin`
is Porter's later program, which Lucene uses (NLTK calls it MARTIN_EXTENSIONS); `nltk` is NLTK's
default.

Words are matrices of letters: row `i` has letter `i` of all words, so that a test of one position
of all words is one array operation. Letters are bytes, or UTF-16 units for words beyond ASCII.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)
#: Matrix widths: words up to one of these lengths are stemmed together.
_WIDTHS = (8, 12, 16, 24, 48, 256)


def stem_words(words: ByteWords, dialect: Dialect) -> ByteWords:
    """Stem lower-case words; every letter must be one number.

    A stem is never longer than its word, because a restored `e` replaces -ed or -ing.
    """
    data, starts, lengths = words.data.copy(), words.offsets[:-1], words.lengths
    last = data[words.offsets[1:] - 1]
    stemmable = (lengths > 2) & (last >= ord("a")) & (last <= ord("z"))
    edges = [2, *_WIDTHS, max(int(lengths.max(initial=0)), _WIDTHS[-1])]
    for shortest, width in pairwise(edges):
        chosen = np.flatnonzero(stemmable & (lengths > shortest) & (lengths <= width))
        if len(chosen):
            letter_index = np.arange(int(lengths[chosen].max()))[:, None]
            positions = starts[chosen] + letter_index
            letters = data[np.minimum(positions, len(data) - 1)]
            matrix = WordMatrix(letters, lengths[chosen], dialect)
            stem(matrix)
            is_inside = letter_index < matrix.lengths
            data[positions[is_inside]] = matrix.letters[is_inside]
            lengths[chosen] = matrix.lengths
    return ByteWords.cut(data, starts, starts + lengths)


def stem_text(words: list[str], dialect: Dialect) -> list[str]:
    """Return the stems of lower-case words of any script, read as UTF-16 units as in Java."""
    units = [np.frombuffer(word.encode("utf-16-le"), dtype=np.uint16) for word in words]
    data = np.concatenate([np.empty(0, dtype=np.uint16), *units])
    stemmed = stem_words(ByteWords(data, offsets_of([len(word) for word in units])), dialect)
    bounds = pairwise(stemmed.offsets)
    return [stemmed.data[first:last].tobytes().decode("utf-16-le") for first, last in bounds]


class WordMatrix:
    """Words of similar length, changed in place by replacing suffixes.

    Methods take `rows`, the indexes of the words to read or change. `removed` and `back` are how
    many letters at the end of a word are ignored.
    """

    def __init__(self, letters: Letters, lengths: Rows, dialect: Dialect) -> None:
        """Copy `letters`, of shape (position, word).

        Letters after the end of a word are ignored.
        """
        self._padded = np.zeros((_TAIL + len(letters), len(lengths)), dtype=letters.dtype)
        self.letters = self._padded[_TAIL:]
        self.letters[:] = letters
        self.lengths = lengths
        self.nltk = dialect == "nltk"
        self.tails = self._last_letters(np.arange(len(lengths)))

    def split(self, rows: Rows, suffix: str) -> tuple[Rows, Rows]:
        """Return the rows whose word ends in the suffix, and the other rows."""
        has_suffix: Flags = self.tails[rows] & _MASKS[len(suffix)] == _as_number(suffix)
        return rows[has_suffix], rows[~has_suffix]

    def replace(self, rows: Rows, removed: int | Rows, added: str) -> None:
        """Remove the last `removed` letters of words, then append `added`."""
        if not len(rows):
            return
        stem_lengths = self.lengths[rows] - removed
        for index, letter in enumerate(added):
            self.letters[stem_lengths + index, rows] = ord(letter)
        self.lengths[rows] = stem_lengths + len(added)
        self.tails[rows] = self._last_letters(rows)

    def replace_suffix(self, rows: Rows, suffix: str, replacement: str) -> Rows:
        """Replace the suffix of the words that end in it; return the rows of the other words."""
        with_suffix, without_suffix = self.split(rows, suffix)
        self.replace(with_suffix, len(suffix), replacement)
        return without_suffix

    def measures(self, rows: Rows, removed: int | Rows) -> Rows:
        """Return Porter's measure of shortened words: how often a consonant follows a vowel."""
        lengths = self.lengths[rows] - removed
        counts = np.zeros(len(rows), dtype=np.int64)
        was_vowel = np.zeros(len(rows), dtype=np.bool_)
        for position, is_vowel in enumerate(self._vowels(rows, lengths)):
            counts += was_vowel & ~is_vowel & (position < lengths)
            was_vowel = is_vowel
        return counts

    def has_vowel(self, rows: Rows, removed: int | Rows) -> Flags:
        """Return which of the shortened words contain a vowel."""
        lengths = self.lengths[rows] - removed
        has_vowel = np.zeros(len(rows), dtype=np.bool_)
        for position, is_vowel in enumerate(self._vowels(rows, lengths)):
            has_vowel |= is_vowel & (position < lengths)
        return has_vowel

    def letter(self, rows: Rows, back: int) -> Letters:
        """Return the letter before the last `back` letters of each word.

        If no letter is left, the first letter of the word is returned.
        """
        return self.letters[np.maximum(self.lengths[rows] - back - 1, 0), rows]

    def consonant(self, rows: Rows, back: int) -> Flags:
        """Return for each word whether a consonant precedes the last `back` letters."""
        positions = self.lengths[rows] - back - 1
        letters = self.letter(rows, back)
        is_consonant = ~_VOWELS[letters]
        y_rows = np.flatnonzero((letters == ord("y")) & (positions > 0))
        if len(y_rows):
            is_consonant[y_rows] = ~self.consonant(rows[y_rows], back + 1)
        return is_consonant & (positions >= 0)

    def short_syllable(self, rows: Rows, removed: int) -> Flags:
        """Return which shortened words end in consonant, vowel, consonant (but not w, x or y).

        The dialect of NLTK also includes words of one vowel and one consonant.
        """
        lengths = self.lengths[rows] - removed
        last, middle, first = (self.consonant(rows, removed + back) for back in range(3))
        ends_in_wxy = np.isin(self.letter(rows, removed), [ord(letter) for letter in "wxy"])
        is_short: Flags = (lengths > 2) & first & ~middle & last & ~ends_in_wxy
        if self.nltk:
            is_short |= (lengths == 2) & ~middle & last
        return is_short

    def _vowels(self, rows: Rows, lengths: Rows) -> Iterator[Flags]:
        """Yield for each position which words have a vowel there; arbitrary after a word's end."""
        is_vowel = np.ones(len(rows), dtype=np.bool_)
        for position in range(int(lengths.max(initial=0))):
            letters = self.letters[position][rows]
            is_vowel = _VOWELS[letters] | ((letters == ord("y")) & ~is_vowel)
            yield is_vowel

    def _last_letters(self, rows: Rows) -> NDArray[np.uint64]:
        """Return the last eight letters of each word as a number; the last is the lowest byte.

        Letters beyond ASCII become 255, which no suffix contains.
        """
        tails = np.zeros(len(rows), dtype=np.uint64)
        positions = self.lengths[rows] + _TAIL
        for back in range(_TAIL):
            positions -= 1
            letters = np.minimum(self._padded[positions, rows], 255).astype(np.uint64)
            tails |= letters << np.uint64(8 * back)
        return tails


def _as_number(suffix: str) -> np.uint64:
    return np.uint64(int.from_bytes(suffix.encode("ascii"), "big"))


@dataclass(frozen=True, eq=False)
class _Rules:
    """Rules: suffixes, how many letters are removed for each, and their replacements."""

    suffixes: list[str]
    removed: Rows
    replacements: NDArray[np.str_]


def _parse_rules(text: str) -> _Rules:
    """Read rules of the form `suffix>replacement` or `letters|suffix>replacement`.

    In the second form, the letters must precede the suffix and are not replaced.
    """
    pairs = [rule.split(">") for rule in text.split()]
    return _Rules(
        suffixes=[suffix.replace("|", "") for suffix, _ in pairs],
        removed=np.array([len(suffix.rpartition("|")[2]) for suffix, _ in pairs]),
        replacements=np.array([replacement for _, replacement in pairs]),
    )


_STEP_2 = (
    "ational>ate tional>tion enci>ence anci>ance izer>ize bli>ble alli>al entli>ent eli>e "
    "ousli>ous ization>ize ation>ate ator>ate alism>al iveness>ive fulness>ful ousness>ous "
    "aliti>al iviti>ive biliti>ble "
)
_MARTIN_STEP_2 = _parse_rules(_STEP_2 + "logi>log")
_NLTK_STEP_2 = _parse_rules(_STEP_2 + "fulli>ful")
_STEP_3 = _parse_rules("icate>ic ative> alize>al iciti>ic ical>ic ful> ness>")
_STEP_4 = _parse_rules(
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
    """Stem lower-case words in place; words of one or two letters are not changed."""
    is_regular = words.lengths > 2
    if words.nltk:
        for word, irregular_stem in _NLTK_IRREGULAR.items():
            rows = np.flatnonzero((words.tails == _as_number(word)) & (words.lengths == len(word)))
            words.replace(rows, len(word), irregular_stem)
            is_regular[rows] = False
    rows = np.flatnonzero(is_regular)
    _strip_plurals(words, rows)
    _strip_participles(words, rows)
    final_y, _ = words.split(rows, "y")
    if words.nltk:
        becomes_i = (words.lengths[final_y] > 2) & words.consonant(final_y, 1)
    else:
        becomes_i = words.has_vowel(final_y, 1)
    words.replace(final_y[becomes_i], 1, "i")
    _replace_double_suffixes(words, rows)
    _apply_rules(words, rows, _STEP_3)
    _apply_rules(words, rows, _STEP_4, above=1)
    final_e, _ = words.split(rows, "e")
    measures = words.measures(final_e, 1)
    keeps_e = (measures == 1) & words.short_syllable(final_e, 1)
    words.replace(final_e[(measures > 0) & ~keeps_e], 1, "")
    double_l, _ = words.split(rows, "ll")
    words.replace(double_l[words.measures(double_l, 1) > 1], 1, "")


def _strip_plurals(words: WordMatrix, rows: Rows) -> None:
    rows, _ = words.split(rows, "s")
    if words.nltk:
        ies, not_ies = words.split(rows, "ies")
        short = words.lengths[ies] == 4
        words.replace(ies[short], 3, "ie")
        rows = np.concatenate([not_ies, ies[~short]])
    for suffix, replacement in (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")):
        rows = words.replace_suffix(rows, suffix, replacement)


def _strip_participles(words: WordMatrix, rows: Rows) -> None:
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
    has_vowel = words.has_vowel(rows, removed)
    words.replace(rows[has_vowel], removed[has_vowel], "")
    _restore_stems(words, rows[has_vowel])


def _restore_stems(words: WordMatrix, rows: Rows) -> None:
    """Correct stems after -ed or -ing was removed: conflat to conflate, hopp to hop."""
    for suffix in ("at", "bl", "iz"):
        rows = words.replace_suffix(rows, suffix, suffix + "e")
    last = words.letter(rows, 0)
    is_repeated = np.equal(last, words.letter(rows, 1)) & (words.lengths[rows] > 1)
    is_double_consonant = is_repeated & words.consonant(rows, 0)
    keeps_double = np.isin(last, [ord(letter) for letter in "lsz"])
    words.replace(rows[is_double_consonant & ~keeps_double], 1, "")
    rows = rows[~is_double_consonant]
    rows = rows[words.short_syllable(rows, 0)]
    words.replace(rows[words.measures(rows, 0) == 1], 0, "e")


def _replace_double_suffixes(words: WordMatrix, rows: Rows) -> None:
    if not words.nltk:
        _apply_rules(words, rows, _MARTIN_STEP_2)
        return
    alli, _ = words.split(rows, "alli")
    words.replace(alli[words.measures(alli, 4) > 0], 2, "")
    logi, rows = words.split(rows, "logi")
    words.replace(logi[words.measures(logi, 3) > 0], 1, "")
    _apply_rules(words, rows, _NLTK_STEP_2)


def _apply_rules(words: WordMatrix, rows: Rows, rules: _Rules, *, above: int = 0) -> None:
    """Replace the first suffix that fits, if the stem's measure is more than `above`.

    The measure is Porter's: how often a consonant follows a vowel.
    """
    tails = words.tails[rows]
    rule = np.full(len(rows), -1, dtype=np.int64)
    # In reverse order, so that an earlier suffix overwrites a later one.
    for index, suffix in reversed(list(enumerate(rules.suffixes))):
        rule[tails & _MASKS[len(suffix)] == _as_number(suffix)] = index
    has_rule = rule >= 0
    rows, rule = rows[has_rule], rule[has_rule]
    removed = rules.removed[rule]
    is_long_enough = words.measures(rows, removed) > above
    for replacement in sorted(set(rules.replacements.tolist())):
        chosen = is_long_enough & (rules.replacements == replacement)[rule]
        words.replace(rows[chosen], removed[chosen], replacement)
