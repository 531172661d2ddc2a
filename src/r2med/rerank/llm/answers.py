"""Read what a model answered, in whatever form it came; None means it cannot be read."""

from __future__ import annotations

import re

_BRACKETED = re.compile(r"\[\s*(\d+)\s*\]")
_NUMBER = re.compile(r"\d+")
_GRADE = re.compile(r"(?<![\d.])(10|\d)(?:\.(\d+))?(?:\s*(?:/|out of)\s*10)?(?![\d.]*\d)")
_LABELLED = re.compile(r"(?:score|grade|rating|relevance)\D{0,20}?(10|\d)(?![\d])", re.IGNORECASE)


def read_order(answer: str, count: int) -> list[int] | None:
    """Positions from 0, best first, as far as the answer names them; each at most once.

    `[2] > [1]`, `2, 1`, a JSON list and lines of either are all read; reasoning before
    `</think>` is not, and numbers that name no passage are passed over.
    """
    said = _conclusion(answer)
    named = _BRACKETED.findall(said) or _NUMBER.findall(said)
    places = [int(number) - 1 for number in named]
    order = list(dict.fromkeys(place for place in places if 0 <= place < count))
    return order or None


def read_grade(answer: str) -> float | None:
    """A grade from 0 to 10: the one that is called so, else the first; yes and no are 10 and 0."""
    said = _conclusion(answer).strip()
    labelled = _LABELLED.search(said)
    if labelled:
        return float(labelled[1])
    found = _GRADE.search(said)
    if found:
        return min(10.0, float(found[1] + (f".{found[2]}" if found[2] else "")))
    word = re.match(r"\W*(yes|no)\b", said, re.IGNORECASE)
    if word:
        return 10.0 if word[1].lower() == "yes" else 0.0
    return None


def _conclusion(answer: str) -> str:
    """What follows the reasoning; an answer that never stopped reasoning concludes nothing."""
    _, mark, after = answer.rpartition("</think>")
    if mark:
        return after
    return "" if "<think>" in answer else answer
