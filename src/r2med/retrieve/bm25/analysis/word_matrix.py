"""A vocabulary as a matrix of letters, with the questions that Porter's algorithm asks of words.

Column-major: letter `p` of all words lies together, so a question about one position of many
words is one array operation. Letters are bytes, or UTF-16 units where words need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

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
