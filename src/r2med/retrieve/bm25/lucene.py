"""Where the words of a text are, exactly as Lucene's StandardTokenizer finds them.

Almost all medical English obeys a local rule: letters, digits and connectors belong together,
and a mark between two letters (`'` `.` `:`) or two digits (`'` `.` `,` `;`) joins them. That rule
is a table look-up and a few shifted comparisons over all bytes of a block at once (`word_spans`).
The rest (combining marks, emoji sequences, Hebrew quotes, words over 255 units, ...) is cut out,
from blank to blank, and given to exact automata that read one character at a time (`scan`).

Python's own Unicode data grows with every release, and `str.lower` knows special cases that
Java's `Character.toLowerCase` does not (`İ`, final sigma); so Lucene's classes of code points and
its lower case are fixed here, in `word_break.txt` and `lower_case.txt`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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

#: Characters that belong to the one before them (Extend, Format, ZWJ).
_EXTENDING = "XZTVCsGgM"
#: The same without the presentation selectors, as emoji sequences need it.
_PLAIN_EXTENDING = "XsCGgM"

_WORD_NEXT = {"Aa": "letter", "H": "hebrew", "N": "number"}

#: state -> {classes: next state}; every state may be followed by extending characters.
_WORDS = {
    "start": {**_WORD_NEXT, "K": "katakana", "_": "opening"},
    "opening": {**_WORD_NEXT, "K": "katakana", "_": "opening"},
    "letter": {**_WORD_NEXT, "_": "closing", "':.": "after letter"},
    "after letter": {"AaH": "letter"},
    "hebrew": {**_WORD_NEXT, "_": "closing", ":.": "after letter", "'": "quoted", '"': "doubly"},
    "quoted": {**_WORD_NEXT, "_": "closing"},
    "doubly": {"H": "quoted"},
    "number": {**_WORD_NEXT, "_": "closing", "',.": "after number"},
    "after number": {"N": "number"},
    "katakana": {"K": "katakana", "_": "closing"},
    "closing": {**_WORD_NEXT, "K": "katakana", "_": "closing"},
}
_ASIAN = {"start": {"Ss": "run"}, "run": {"Ss": "run"}}
_SINGLES = {"start": {"JR": "one"}, "one": {}}
_FLAGS = {"start": {"I": "half"}, "half": {"I": "flag"}, "flag": {}}
_KEYCAPS = {
    "start": {"#": "base"},
    "base": {_PLAIN_EXTENDING.replace("C", "") + "Z": "base", "C": "plain", "V": "awaiting"},
    "plain": {_PLAIN_EXTENDING + "Z": "plain", "V": "awaiting"},
    "awaiting": {"C": "keycap"},
    "keycap": {_PLAIN_EXTENDING + "Z": "keycap"},
}
_EMOJI = {
    "start": {"Ea": "emoji", "M": "modified", "Z": "leading"},
    "leading": {"Ea": "emoji", "Z": "leading"},
    "emoji": {_PLAIN_EXTENDING: "emoji", "Z": "joined", "V": "styled"},
    "joined": {_PLAIN_EXTENDING + "Ea": "emoji", "Z": "joined", "V": "styled"},
    "styled": {"Z": "styled join", "G": "tagged"},
    "styled join": {"Z": "styled joins", "Ea": "emoji", "M": "modified"},
    "styled joins": {"Z": "styled joins", "Ea": "emoji"},
    "modified": {_PLAIN_EXTENDING: "modified", "Z": "modified join"},
    "modified join": {_PLAIN_EXTENDING: "modified", "Z": "modified join", "Ea": "emoji"},
    "tagged": {"G": "tagged", "g": "tag"},
    "tag": {},
}  # fmt: skip

_UNFINISHED = {
    "start", "opening", "after letter", "after number", "doubly", "half", "base", "awaiting",
    "leading", "styled join", "styled joins", "tagged",
}  # fmt: skip

_Moves = Mapping[str, Mapping[str, str]]


def _moves(states: Mapping[str, Mapping[str, str]], extending: str = "") -> _Moves:
    """One entry a class, and extending characters staying where they are unless said otherwise."""
    expanded: dict[str, dict[str, str]] = {}
    for state, table in states.items():
        stay = {} if state == "start" else dict.fromkeys(extending, state)
        said = {each: after for classes, after in table.items() for each in classes}
        expanded[state] = {**stay, **said}
    return expanded


_AUTOMATA = [
    *(_moves(states, _EXTENDING) for states in (_WORDS, _ASIAN, _SINGLES, _FLAGS)),
    _moves(_KEYCAPS),
    _moves(_EMOJI),
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
        length = max(_longest(moves, classes[place : place + held]) for moves in _AUTOMATA)
        if length:
            spans.append((place, place + length))
        place += max(length, 1)
    return spans


def _longest(moves: _Moves, classes: str) -> int:
    """How many characters the longest match covers; 0 when none begins here."""
    state, longest = "start", 0
    for place, each in enumerate(classes, start=1):
        after = moves[state].get(each)
        if after is None:
            break
        state = after
        if state not in _UNFINISHED:
            longest = place
    return longest


_LETTER, _NUMBER, _CONNECTOR = 1, 2, 4
_WORD = _LETTER | _NUMBER | _CONNECTOR
_JOINS = 4
"""How far the bits of a joining mark lie above those of what it joins."""

_SINGLE, _HARD = 64, 128
_TAKEN = 8
"""Marks bytes whose words are known already: neither blank nor part of a run."""

#: What the bulk rule does with classes: join, take as whole words, or leave to the automata.
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
Codes = NDArray[np.uint8]


@dataclass(frozen=True)
class Spans:
    """Words as byte ranges of a block, in order."""

    starts: Places
    ends: Places


def alphanumeric_spans(block: bytes) -> Spans:
    """Runs of ASCII letters and digits."""
    return _runs(np.frombuffer(block.translate(_ALPHANUMERIC), dtype=np.uint8))


def word_spans(block: bytes) -> Spans:
    """The words that Lucene's StandardTokenizer finds.

    The block must begin and end with a blank, and rows within it must be separated by one.
    """
    ascii_kinds = _kind_table()[:128].tobytes() + bytes(128)
    codes = np.frombuffer(bytearray(block.translate(ascii_kinds)), dtype=np.uint8)
    others: list[Spans] = []
    singles = None if block.isascii() else _mark_beyond_ascii(block, codes, others)
    runs = _runs(_joined(codes))
    long = runs.ends - runs.starts > LONGEST
    if long.any():
        others.append(_scanned(block, codes, runs.starts[long]))
        runs = _runs(_joined(codes))
    if singles is not None:
        free = codes[singles.starts] != _TAKEN
        others.append(Spans(singles.starts[free], singles.ends[free]))
    if not any(len(part.starts) for part in others):
        return runs
    # Runs are many and in order, the others are few.
    starts = np.concatenate([part.starts for part in others])
    order = np.argsort(starts)
    ends = np.concatenate([part.ends for part in others])[order]
    places = np.searchsorted(runs.starts, starts[order])
    return Spans(np.insert(runs.starts, places, starts[order]), np.insert(runs.ends, places, ends))


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
    first = data[leads].astype(np.int64)
    widths = 2 + (first >= 0xE0).astype(np.int64) + (first >= 0xF0)
    points = first & (0x7F >> widths)
    for step in (1, 2, 3):
        longer = widths > step
        points[longer] = points[longer] << 6 | data[leads[longer] + step] & 0x3F
    kinds = _kind_table()[points]
    hard = kinds == _HARD
    if hard.any():
        scanned.append(_scanned(block, codes, leads[hard]))
    free = codes[leads] != _TAKEN
    simple = free & (kinds & _WORD > 0)
    _fill(codes, leads[simple], widths[simple], kinds[simple])
    # A mark between two letters or digits is part of the word, yet no letter.
    marks = np.flatnonzero(free & (kinds >> _JOINS & (_LETTER | _NUMBER) > 0))
    before, after = codes[leads[marks] - 1], codes[leads[marks] + widths[marks]]
    marks = marks[(kinds[marks] >> _JOINS) & before & after != 0]
    _fill(codes, leads[marks], widths[marks], np.full(len(marks), _CONNECTOR, np.uint8))
    single = kinds == _SINGLE
    return Spans(leads[single], leads[single] + widths[single])


def _fill(codes: Codes, leads: Places, widths: Places, value: Codes) -> None:
    for step in range(4):
        wide = widths > step
        codes[leads[wide] + step] = value[wide]


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


@cache
def _kind_table() -> Codes:
    kinds = np.zeros(256, dtype=np.uint8)
    for symbols, kind in _KINDS.items():
        kinds[[ord(symbol) for symbol in symbols]] = kind
    return kinds[class_table()]
