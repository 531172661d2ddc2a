"""The exact word rules, a character at a time, for the few stretches that the bulk rules leave.

Lucene's StandardTokenizer takes the longest match of its grammar (UAX #29 word boundaries, emoji
sequences of UTS #51, runs of South-East Asian script) within 255 UTF-16 units. The grammar is
written here as small automata over the classes of `code_points.CLASSES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from r2med.retrieve.bm25.analysis.code_points import classes_of

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
        window = _window(text, classes, place)
        length = max(_longest(moves, window) for moves in _AUTOMATA)
        if length:
            spans.append((place, place + length))
        place += max(length, 1)
    return spans


def _window(text: str, classes: str, start: int) -> str:
    """The classes that Lucene's buffer can hold from here: 255 UTF-16 units, no half pair."""
    reach = text[start : start + LONGEST]
    if reach.isascii():
        return classes[start : start + LONGEST]
    units = accumulate(1 + (character > "\uffff") for character in reach)
    return classes[start : start + sum(total <= LONGEST for total in units)]


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
