"""What a code point is to the word rules, and its lower case: tables that no Python release moves.

Python's own Unicode data grows with every release, and `str.lower` knows special cases that
Java's `Character.toLowerCase` does not (`İ`, final sigma); Lucene's answers are fixed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: One character a class, so that a text's classes are themselves a string.
CLASSES = {
    "other": "o",
    "letter": "A",
    "letter_emoji": "a",
    "hebrew": "H",
    "number": "N",
    "katakana": "K",
    "connector": "_",
    "single_quote": "'",
    "double_quote": '"',
    "mid_letter": ":",
    "mid_either": ".",
    "mid_number": ",",
    "extend": "X",
    "joiner": "Z",
    "text_style": "T",
    "emoji_style": "V",
    "asian": "S",
    "asian_extend": "s",
    "ideograph": "J",
    "hiragana": "R",
    "flag": "I",
    "emoji": "E",
    "modifier": "M",
    "keycap_base": "#",
    "keycap": "C",
    "tag": "G",
    "tag_end": "g",
}

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
