"""Porter's stemmer over a whole vocabulary at once, in its two dialects in circulation.

Written by hand because every stemmer in Python takes one word at a time; here a step of the
algorithm is a handful of array operations on all words that end alike. `martin` is Porter's own
later program, which Lucene uses (and NLTK calls MARTIN_EXTENSIONS); `nltk` is NLTK's default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.bm25.analysis.word_matrix import Rows, WordMatrix

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
