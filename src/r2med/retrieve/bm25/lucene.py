"""Find the words of a text exactly as Lucene's StandardTokenizer does.

Almost all medical English follows a local rule: letters, digits and connectors belong together,
and a mark between two letters (`'` `.` `:`) or two digits (`'` `.` `,` `;`) joins them. That rule
is a table look-up and a few shifted comparisons over all bytes of a block at once (`word_spans`).
Texts with anything else (combining marks, emoji sequences, Hebrew quotes, long words, ...) are cut
out, from blank to blank, and read by Lucene's own rules as regular expressions (`scan`).

Python's Unicode data grows with every release, and `str.lower` has special cases that Java's
`Character.toLowerCase` does not have (`İ`, final sigma). So Lucene's classes of code points and its
lower case are fixed here, in `word_break.txt` and `lower_case.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: One character per class, so that the classes of a text are a string.
CLASSES = {
    "other": "o", "letter": "A", "letter_emoji": "a", "hebrew": "H", "number": "N", "katakana": "K",
    "connector": "_", "single_quote": "'", "double_quote": '"', "mid_letter": ":",
    "mid_either": ".", "mid_number": ",", "extend": "X", "joiner": "Z", "text_style": "T",
    "emoji_style": "V", "asian": "S", "asian_extend": "s", "ideograph": "J", "hiragana": "R",
    "flag": "I", "emoji": "E", "modifier": "M", "keycap_base": "#", "keycap": "C", "tag": "G",
    "tag_end": "g",
}  # fmt: skip

_LAST = 0x10FFFF


@cache
def class_table() -> NDArray[np.uint8]:
    """Return the class of every code point: the code of a character in `CLASSES`."""
    table = np.full(_LAST + 1, ord(CLASSES["other"]), dtype=np.uint8)
    for name, ranges in _lines("word_break.txt"):
        for first, last in _ranges(ranges):
            table[first : last + 1] = ord(CLASSES[name])
    return table


@cache
def lower_case() -> dict[int, int]:
    """Return a table for `str.translate` that maps each code point to one lower-case code point."""
    mapping: dict[int, int] = {}
    for distance, step_and_ranges in _lines("lower_case.txt"):
        step, ranges = step_and_ranges.split(" ", 1)
        for first, last in _ranges(ranges):
            mapping.update({c: c + int(distance) for c in range(first, last + 1, int(step))})
    return mapping


def classes_of(text: str) -> str:
    """Return the word-break class of every character of a text, as a string of equal length."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    return bytes(class_table()[points]).decode("ascii")


def _lines(name: str) -> Iterator[tuple[str, str]]:
    for line in Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            first_word, remainder = line.split(" ", 1)
            yield first_word, remainder


def _ranges(text: str) -> Iterator[tuple[int, int]]:
    for part in text.split():
        first, _, last = part.partition("-")
        yield int(first, 16), int(last or first, 16)


_ALPHANUMERIC = bytes(byte < 128 and chr(byte).isalnum() for byte in range(256))
#: Lucene's longest token, in UTF-16 units; a longer word is cut, not dropped.
LONGEST = 255
#: Bytes of the longest character in UTF-8.
_LONGEST_CHARACTER = 4


def _allow_extenders(pattern: str) -> re.Pattern[str]:
    """Compile a pattern in which extending characters may follow every character."""
    return re.compile(re.sub(r"\[.*?\]|[A-Za-z_'\"]", r"(?:\g<0>[XZTVCsGgM]*)", pattern))


_WORD_PART = r"""(?:K+|(?:H(?:'|"H)|[AaH](?:[':.][AaH])*|N(?:[',.]N)*)+)"""
_PICTURE = r"[Ea](?:[XsCGgMZ]|(?<=Z)[Ea])*"
_MODIFIER = r"M[XsCGgMZ]*"
#: Lucene's rules over the classes of a text; the longest match at a position is a token.
_RULES = [
    _allow_extenders(rf"_*{_WORD_PART}(?:_+{_WORD_PART})*_*"),
    _allow_extenders("[Ss]+"),
    _allow_extenders("[JR]"),
    _allow_extenders("II"),
    re.compile("#[XsGgMZ]*(?:C[XsCGgMZ]*(?:VC[XsCGgMZ]*)?|VC[XsCGgMZ]*)"),
    re.compile(
        rf"(?:{_MODIFIER}(?<=Z)|Z*){_PICTURE}(?:VZ(?:{_MODIFIER}(?<=Z)|Z*){_PICTURE})*"
        rf"(?:V(?:Z{_MODIFIER}|G+g)?)?|{_MODIFIER}"
    ),
]


def scan(text: str) -> list[tuple[int, int]]:
    """Return the (start, end) of every token of a text, in code points."""
    classes = classes_of(text)
    spans = []
    start = 0
    while start < len(text):
        limit = start + _characters_in_buffer(text[start : start + LONGEST])
        matches = [rule.match(classes, start, limit) for rule in _RULES]
        end = max((match.end() for match in matches if match), default=start)
        if end > start:
            spans.append((start, end))
            start = end
        else:
            start += 1
    return spans


def _characters_in_buffer(text: str) -> int:
    """Return how many characters fit into Lucene's buffer of 255 UTF-16 units.

    A surrogate pair is not split, so the last unit may stay empty.
    """
    if text.isascii():
        return len(text)
    units = accumulate(2 if character > "\uffff" else 1 for character in text)
    return sum(total <= LONGEST for total in units)


#: Bits of the bulk rule. A joining mark has the bits of the characters it joins, shifted up.
_LETTER, _NUMBER, _CONNECTOR = 1, 2, 4
_IN_WORD = np.uint8(_LETTER | _NUMBER | _CONNECTOR)
_MARK_SHIFT = 4
_JOINING_MARK = np.uint8((_LETTER | _NUMBER) << _MARK_SHIFT)
_ONE_CHARACTER_WORD, _NEEDS_SCAN = 8, 128

#: The bits of each class; characters of other classes separate words.
_BITS_BY_CLASS = {
    "Aa": _LETTER,
    "N": _NUMBER,
    "_": _CONNECTOR,
    ":": _LETTER << _MARK_SHIFT,
    ",": _NUMBER << _MARK_SHIFT,
    ".'": (_LETTER | _NUMBER) << _MARK_SHIFT,
    "JRE": _ONE_CHARACTER_WORD,
    "HKXZTVSsIMCGg": _NEEDS_SCAN,
}

Positions = NDArray[np.int64]
Bits = NDArray[np.uint8]
Spans = tuple[Positions, Positions]
"""The positions of the bytes at which words start, and of those at which they end."""


def alphanumeric_spans(block: bytes) -> Spans:
    """Return where the runs of ASCII letters and digits in a block start and end."""
    return _find_runs(np.frombuffer(block.translate(_ALPHANUMERIC), dtype=np.uint8))


def word_spans(block: bytes) -> Spans:
    """Return where the words that Lucene's StandardTokenizer finds start and end.

    The block must begin and end with a blank, and a blank must separate the texts in it.
    """
    data = np.frombuffer(block, dtype=np.uint8)
    bits = np.frombuffer(bytearray(block.translate(_ascii_bits())), dtype=np.uint8)
    wide = _find_wide_characters(data)
    wide.write_bits(bits)
    scanned = _scan_around(block, bits, wide.starts[wide.bits == _NEEDS_SCAN])
    starts, ends = _find_runs(_words_and_joins(bits, wide))
    is_long = ends - starts > LONGEST // 2
    if is_long.any():
        scanned += _scan_around(block, bits, starts[is_long])
        starts, ends = _find_runs(_words_and_joins(bits, wide))
    is_word = bits[wide.starts] == _ONE_CHARACTER_WORD
    one_character_words = wide.starts[is_word]
    if scanned or len(one_character_words):
        # Runs are many and in order, the others are few.
        one_character_ends = one_character_words + wide.sizes[is_word]
        scanned += zip(one_character_words.tolist(), one_character_ends.tolist(), strict=True)
        few_spans = np.array(sorted(scanned))
        indexes = np.searchsorted(starts, few_spans[:, 0])
        starts = np.insert(starts, indexes, few_spans[:, 0])
        ends = np.insert(ends, indexes, few_spans[:, 1])
    return starts, ends


@dataclass(frozen=True, eq=False)
class _WideCharacters:
    """The characters beyond ASCII in a block: index of the first byte, number of bytes, bits."""

    starts: Positions
    sizes: Positions
    bits: Bits

    def select(self, chosen: NDArray[np.bool_]) -> _WideCharacters:
        return _WideCharacters(self.starts[chosen], self.sizes[chosen], self.bits[chosen])

    @property
    def joining_marks(self) -> _WideCharacters:
        return self.select((self.bits & _JOINING_MARK) > 0)

    def write_bits(self, bits: Bits) -> None:
        """Write the bits of these characters, except joining marks, to all of their bytes."""
        # The bulk rule looks at the byte before and after a mark, so it must be a single byte.
        not_marks = self.select((self.bits & _JOINING_MARK) == 0)
        bits[not_marks.starts] = not_marks.bits
        not_marks.select((not_marks.bits & _IN_WORD) > 0).write_following_bytes(bits)

    def write_following_bytes(self, bits: Bits) -> None:
        for offset in range(1, _LONGEST_CHARACTER):
            longer = self.select(self.sizes > offset)
            bits[longer.starts + offset] = longer.bits


def _find_wide_characters(data: NDArray[np.uint8]) -> _WideCharacters:
    starts = np.flatnonzero(data >= 0xC0)
    first = data[starts].astype(np.int64)
    second, third, fourth = (
        data.take(starts + offset, mode="clip").astype(np.int64) & 0x3F for offset in (1, 2, 3)
    )
    sizes = 2 + (first >= 0xE0) + (first >= 0xF0)
    two_bytes = (first & 0x1F) << 6 | second
    three_bytes = (first & 0x0F) << 12 | second << 6 | third
    four_bytes = (first & 0x07) << 18 | second << 12 | third << 6 | fourth
    points = np.select([sizes == 2, sizes == 3], [two_bytes, three_bytes], four_bytes)
    return _WideCharacters(starts, sizes, _bits_by_code_point()[points])


def _find_runs(values: Bits) -> Spans:
    """Return where the runs of non-zero values start and end."""
    is_inside = values.astype(np.bool_)
    edges = np.flatnonzero(is_inside[1:] != is_inside[:-1])
    edges += 1
    return edges[0::2], edges[1::2]


def _words_and_joins(bits: Bits, wide: _WideCharacters) -> Bits:
    """Return an array that is not 0 at bytes of words, and of marks that join letters or digits."""
    words: Bits = bits & _IN_WORD
    joins = bits[1:-1] >> np.uint8(_MARK_SHIFT)
    joins &= bits[:-2]
    joins &= bits[2:]
    words[1:-1] |= joins
    marks = wide.joining_marks
    if len(marks.starts):
        wide_joins = marks.bits >> np.uint8(_MARK_SHIFT)
        wide_joins &= bits[marks.starts - 1]
        wide_joins &= bits[marks.starts + marks.sizes]
        joining = _WideCharacters(marks.starts, marks.sizes, wide_joins).select(wide_joins > 0)
        words[joining.starts] = joining.bits
        joining.write_following_bytes(words)
    return words


def _scan_around(block: bytes, bits: Bits, positions: Positions) -> list[tuple[int, int]]:
    """Return the tokens in the stretches, from blank to blank, that contain these positions.

    The stretches are read by `scan`, and their `bits` are set to 0.
    """
    if not len(positions):
        return []
    blanks = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) <= ord(" "))
    next_blanks = np.unique(np.searchsorted(blanks, positions))
    starts, ends = blanks[next_blanks - 1] + 1, blanks[next_blanks]
    spans = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        text = block[start:end].decode("utf-8")
        offsets = list(accumulate((len(letter.encode()) for letter in text), initial=start))
        spans += [(offsets[first], offsets[last]) for first, last in scan(text)]
        bits[start:end] = 0
    return spans


@cache
def _bits_by_code_point() -> Bits:
    bits_by_class = np.zeros(256, dtype=np.uint8)
    for symbols, bits in _BITS_BY_CLASS.items():
        bits_by_class[[ord(symbol) for symbol in symbols]] = bits
    return bits_by_class[class_table()]


@cache
def _ascii_bits() -> bytes:
    """Return a table for `bytes.translate` with the bits of ASCII bytes, and 0 for other bytes."""
    return _bits_by_code_point()[:128].tobytes() + bytes(128)
