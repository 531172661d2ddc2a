"""Where the words of a block of text are, found by whole-array operations on its UTF-8 bytes.

Almost all medical English obeys a local rule: letters, digits and connectors belong together,
and a mark between two letters (`'` `.` `:`) or two digits (`'` `.` `,` `;`) joins them. That rule
is a table look-up and a few shifted comparisons over all bytes at once. The rest (combining
marks, emoji sequences, Hebrew quotes, words over 255 units, ...) is cut out, from blank to blank,
and given to the exact scanner.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.bm25.analysis.code_points import CLASSES, class_table
from r2med.retrieve.bm25.analysis.scanner import LONGEST, scan

_LETTER, _NUMBER, _CONNECTOR = 1, 2, 4
_WORD = _LETTER | _NUMBER | _CONNECTOR
_JOINS = 4
"""How far the bits of a joining mark lie above those of what it joins."""

_BITS = {
    "letter": _LETTER,
    "letter_emoji": _LETTER,
    "number": _NUMBER,
    "connector": _CONNECTOR,
    "mid_letter": _LETTER << _JOINS,
    "mid_number": _NUMBER << _JOINS,
    "mid_either": (_LETTER | _NUMBER) << _JOINS,
    "single_quote": (_LETTER | _NUMBER) << _JOINS,
}
_SINGLE, _HARD = 64, 128
_TAKEN = 8
"""Marks bytes whose words are known already: neither blank nor part of a run."""

_SINGLES = ("ideograph", "hiragana", "emoji")
_HARDS = (
    "hebrew", "katakana", "extend", "joiner", "text_style", "emoji_style", "asian",
    "asian_extend", "flag", "modifier", "keycap", "tag", "tag_end",
)  # fmt: skip

Places = NDArray[np.int64]
Codes = NDArray[np.uint8]


@dataclass(frozen=True)
class Spans:
    """Words as byte ranges of a block, in order."""

    starts: Places
    ends: Places


_NONE = Spans(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def alphanumeric_spans(block: bytes) -> Spans:
    """Runs of ASCII letters and digits."""
    return _runs(np.frombuffer(block.translate(_alphanumeric_table()), dtype=np.uint8))


def word_spans(block: bytes) -> Spans:
    """The words that Lucene's StandardTokenizer finds.

    The block must begin and end with a blank, and rows within it must be separated by one.
    """
    codes = np.frombuffer(bytearray(block.translate(_ascii_table())), dtype=np.uint8)
    scanned: list[Spans] = []
    singles = _NONE if block.isascii() else _mark_beyond_ascii(block, codes, scanned)
    runs = _runs(_joined(codes))
    long = runs.ends - runs.starts > LONGEST
    if long.any():
        scanned.append(_scanned(block, codes, runs.starts[long]))
        runs = _runs(_joined(codes))
    return _merged([runs, _untaken(singles, codes), *scanned])


def _runs(word: Codes) -> Spans:
    inside = word.astype(np.bool_)
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    edges += 1
    return Spans(edges[0::2], edges[1::2])


def _joined(codes: Codes) -> Codes:
    """Non-zero where a byte belongs to a word, marks between two letters or digits included."""
    word: Codes = codes & np.uint8(_WORD)
    marks = codes[1:-1] >> np.uint8(_JOINS)
    marks &= codes[:-2]
    marks &= codes[2:]
    word[1:-1] |= marks
    return word


def _mark_beyond_ascii(block: bytes, codes: Codes, scanned: list[Spans]) -> Spans:
    """Complete the codes for multi-byte characters; return those that are words by themselves."""
    data = np.frombuffer(block, dtype=np.uint8)
    leads = np.flatnonzero(data >= 0xC0)
    points, widths = _decoded(data, leads)
    kinds = _kind_table()[points]
    hard = kinds == _HARD
    if hard.any():
        scanned.append(_scanned(block, codes, leads[hard]))
    free = codes[leads] != _TAKEN
    simple = free & (kinds & _WORD > 0)
    _fill(codes, leads[simple], widths[simple], kinds[simple])
    marks = free & (kinds >> _JOINS & (_LETTER | _NUMBER) > 0)
    _join_wide(codes, leads[marks], widths[marks], kinds[marks])
    single = kinds == _SINGLE
    return Spans(leads[single], leads[single] + widths[single])


def _decoded(data: Codes, leads: Places) -> tuple[Places, Places]:
    """Code points and byte lengths of the characters at `leads`."""
    first = data[leads].astype(np.int64)
    widths = 2 + (first >= 0xE0).astype(np.int64) + (first >= 0xF0)
    points = first & (0x7F >> widths)
    for step in (1, 2, 3):
        longer = widths > step
        points[longer] = points[longer] << 6 | data[leads[longer] + step] & 0x3F
    return points, widths


def _fill(codes: Codes, leads: Places, widths: Places, value: Codes) -> None:
    for step in range(4):
        wide = widths > step
        codes[leads[wide] + step] = value[wide]


def _join_wide(codes: Codes, leads: Places, widths: Places, kinds: Codes) -> None:
    """A multi-byte mark between two letters or digits is part of the word, yet no letter."""
    joins = (kinds >> _JOINS) & codes[leads - 1] & codes[leads + widths] != 0
    _fill(codes, leads[joins], widths[joins], np.full(int(joins.sum()), _CONNECTOR, np.uint8))


def _scanned(block: bytes, codes: Codes, places: Places) -> Spans:
    """Scan the stretches around these places exactly, and take them away from the bulk rule."""
    data = np.frombuffer(block, dtype=np.uint8)
    blanks = np.flatnonzero(data <= 0x20)
    gaps = np.unique(np.searchsorted(blanks, places))
    starts: list[int] = []
    ends: list[int] = []
    for first, last in zip(blanks[gaps - 1] + 1, blanks[gaps], strict=True):
        text = block[first:last].decode("utf-8")
        bytes_before = np.cumsum([0] + [len(each.encode("utf-8")) for each in text]) + first
        for start, end in scan(text):
            starts.append(bytes_before[start])
            ends.append(bytes_before[end])
        codes[first:last] = _TAKEN
    return Spans(np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64))


def _untaken(spans: Spans, codes: Codes) -> Spans:
    """Those spans that no scanned stretch holds."""
    free = codes[spans.starts] != _TAKEN
    return Spans(spans.starts[free], spans.ends[free])


def _merged(parts: list[Spans]) -> Spans:
    """All spans in order; the first part is long and ordered, the others are short."""
    runs, *others = [part for part in parts if len(part.starts)] or [_NONE]
    if not others:
        return runs
    starts = np.concatenate([part.starts for part in others])
    order = np.argsort(starts)
    ends = np.concatenate([part.ends for part in others])[order]
    places = np.searchsorted(runs.starts, starts[order])
    return Spans(np.insert(runs.starts, places, starts[order]), np.insert(runs.ends, places, ends))


@cache
def _kind_table() -> Codes:
    kinds = np.zeros(256, dtype=np.uint8)
    for name, symbol in CLASSES.items():
        special = _SINGLE * (name in _SINGLES) | _HARD * (name in _HARDS)
        kinds[ord(symbol)] = _BITS.get(name, special)
    return kinds[class_table()]


@cache
def _ascii_table() -> bytes:
    return _kind_table()[:128].tobytes() + bytes(128)


@cache
def _alphanumeric_table() -> bytes:
    return bytes(chr(byte).isalnum() and byte < 128 for byte in range(256))
