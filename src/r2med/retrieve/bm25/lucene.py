"""Where the words of a text are, exactly as Lucene's StandardTokenizer finds them.

Almost all medical English obeys a local rule: letters, digits and connectors belong together,
and a mark between two letters (`'` `.` `:`) or two digits (`'` `.` `,` `;`) joins them. That rule
is a table look-up and a few shifted comparisons over all characters of a block at once
(`word_spans`). The rest (combining marks, emoji sequences, Hebrew quotes, long words, ...) is cut
out, from blank to blank, and read by Lucene's own rules as regular expressions (`scan`).

Python's own Unicode data grows with every release, and `str.lower` knows special cases that
Java's `Character.toLowerCase` does not (`İ`, final sigma); so Lucene's classes of code points and
its lower case are fixed here, in `word_break.txt` and `lower_case.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from r2med.runs.run import offsets_of

#: One character a class, so that a text's classes are themselves a string.
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
    """The class of every code point, as the code of its character in `CLASSES`."""
    table = np.full(_LAST + 1, ord(CLASSES["other"]), dtype=np.uint8)
    for name, ranges in _lines("word_break.txt"):
        for first, last in _ranges(ranges):
            table[first : last + 1] = ord(CLASSES[name])
    return table


@cache
def lower_case() -> dict[int, int]:
    """Code point to lower-case code point, for `str.translate`; one to one."""
    mapping: dict[int, int] = {}
    for distance, rest in _lines("lower_case.txt"):
        step, ranges = rest.split(" ", 1)
        for first, last in _ranges(ranges):
            mapping.update({c: c + int(distance) for c in range(first, last + 1, int(step))})
    return mapping


def classes_of(text: str) -> str:
    """The classes of a text, a character each."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    return bytes(class_table()[points]).decode("ascii")


def _lines(name: str) -> Iterator[tuple[str, str]]:
    for line in Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            head, rest = line.split(" ", 1)
            yield head, rest


def _ranges(text: str) -> Iterator[tuple[int, int]]:
    for part in text.split():
        first, _, last = part.partition("-")
        yield int(first, 16), int(last or first, 16)


_ALPHANUMERIC = bytes(byte < 128 and chr(byte).isalnum() for byte in range(256))
#: Lucene's longest token, in UTF-16 units; a longer word is cut, not dropped.
LONGEST = 255


def _extended(pattern: str) -> re.Pattern[str]:
    """Any character that a pattern names may be followed by ones that belong to it."""
    return re.compile(re.sub(r"\[.*?\]|[A-Za-z_'\"]", r"(?:\g<0>[XZTVCsGgM]*)", pattern))


_WORD_PART = r"""(?:K+|(?:H(?:'|"H)|[AaH](?:[':.][AaH])*|N(?:[',.]N)*)+)"""
_PICTURE = r"[Ea](?:[XsCGgMZ]|(?<=Z)[Ea])*"
_MODIFIER = r"M[XsCGgMZ]*"
#: Lucene's rules over the classes of a text; the longest match that begins at a place is a token.
_RULES = [
    _extended(rf"_*{_WORD_PART}(?:_+{_WORD_PART})*_*"),
    _extended("[Ss]+"),
    _extended("[JR]"),
    _extended("II"),
    re.compile("#[XsGgMZ]*(?:C[XsCGgMZ]*(?:VC[XsCGgMZ]*)?|VC[XsCGgMZ]*)"),
    re.compile(
        rf"(?:{_MODIFIER}(?<=Z)|Z*){_PICTURE}(?:VZ(?:{_MODIFIER}(?<=Z)|Z*){_PICTURE})*"
        rf"(?:V(?:Z{_MODIFIER}|G+g)?)?|{_MODIFIER}"
    ),
]


def scan(text: str) -> list[tuple[int, int]]:
    """The tokens of a text as (start, end) in code points; what no rule matches is skipped."""
    classes = classes_of(text)
    spans = []
    place = 0
    while place < len(text):
        # Lucene's buffer holds 255 UTF-16 units, and no half pair.
        reach = text[place : place + LONGEST]
        units = accumulate(1 + (character > "\uffff") for character in reach)
        held = len(reach) if reach.isascii() else sum(total <= LONGEST for total in units)
        matches = [rule.match(classes, place, place + held) for rule in _RULES]
        end = max((match.end() for match in matches if match), default=place)
        if end > place:
            spans.append((place, end))
        place = max(end, place + 1)
    return spans


_LETTER, _NUMBER, _CONNECTOR = 1, 2, 4
_WORD = _LETTER | _NUMBER | _CONNECTOR
_JOINS = 4
"""How far the bits of a joining mark lie above those of what it joins."""
_SINGLE, _HARD = 8, 128

#: What the bulk rule does with classes: join, take as whole words, or leave to the exact rules.
_KINDS = {
    "Aa": _LETTER,
    "N": _NUMBER,
    "_": _CONNECTOR,
    ":": _LETTER << _JOINS,
    ",": _NUMBER << _JOINS,
    ".'": (_LETTER | _NUMBER) << _JOINS,
    "JRE": _SINGLE,
    "HKXZTVSsIMCGg": _HARD,
}

Places = NDArray[np.int64]
Kinds = NDArray[np.uint8]
Spans = tuple[Places, Places]
"""Where the words of a block start and end, in bytes and in order."""


def alphanumeric_spans(block: bytes) -> Spans:
    """Runs of ASCII letters and digits."""
    return _runs(np.frombuffer(block.translate(_ALPHANUMERIC), dtype=np.uint8))


def word_spans(block: bytes) -> Spans:
    """The words that Lucene's StandardTokenizer finds.

    The block must begin and end with a blank, and rows within it must be separated by one.
    """
    text = block.decode("utf-8")
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    wide = np.flatnonzero(points > 0x7F)
    narrow = text.encode("ascii", "replace").translate(_kind_table()[:256].tobytes())
    kinds = np.frombuffer(bytearray(narrow), dtype=np.uint8)
    kinds[wide] = _kind_table()[points[wide]]
    scanned = _scanned(text, points, kinds, np.flatnonzero(kinds == _HARD))
    starts, ends = _runs(_joined(kinds))
    long = ends - starts > LONGEST // 2
    if long.any():
        scanned += _scanned(text, points, kinds, starts[long])
        starts, ends = _runs(_joined(kinds))
    singles = np.flatnonzero(kinds == _SINGLE)
    if scanned or len(singles):
        # Runs are many and in order, the others are few.
        others = np.array(sorted(scanned + [(place, place + 1) for place in singles.tolist()]))
        places = np.searchsorted(starts, others[:, 0])
        starts = np.insert(starts, places, others[:, 0])
        ends = np.insert(ends, places, others[:, 1])
    more_bytes = offsets_of(1 + (points[wide] > 0x7FF) + (points[wide] > 0xFFFF))

    def in_bytes(places: Places) -> Places:
        following = np.searchsorted(places, wide, side="right")
        counts = np.diff(following, prepend=0, append=len(places))
        return places + np.repeat(more_bytes, counts)

    return in_bytes(starts), in_bytes(ends)


def _runs(word: Kinds) -> Spans:
    inside = word.astype(np.bool_)
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    edges += 1
    return edges[0::2], edges[1::2]


def _joined(kinds: Kinds) -> Kinds:
    """Non-zero where a character is part of a word, as are marks between two letters or digits."""
    word: Kinds = kinds & np.uint8(_WORD)
    marks = kinds[1:-1] >> np.uint8(_JOINS)
    marks &= kinds[:-2]
    marks &= kinds[2:]
    word[1:-1] |= marks
    return word


def _scanned(
    text: str, points: NDArray[np.uint32], kinds: Kinds, places: Places
) -> list[tuple[int, int]]:
    """Scan the stretches around these places exactly, and take them away from the bulk rule."""
    if not len(places):
        return []
    blanks = np.flatnonzero(points <= 0x20)
    gaps = np.unique(np.searchsorted(blanks, places))
    spans = []
    for first, last in zip((blanks[gaps - 1] + 1).tolist(), blanks[gaps].tolist(), strict=True):
        spans += [(first + start, first + end) for start, end in scan(text[first:last])]
        kinds[first:last] = 0
    return spans


@cache
def _kind_table() -> Kinds:
    kinds = np.zeros(256, dtype=np.uint8)
    for symbols, kind in _KINDS.items():
        kinds[[ord(symbol) for symbol in symbols]] = kind
    return kinds[class_table()]
