"""An order or a grade, read from what a language model answered, in whatever form it came."""

from __future__ import annotations

import re

from r2med.expand.answers import conclusion, is_refusal

_BRACKETED = re.compile(r"\[\s*(\d+)\s*\]")
_INTEGER = re.compile(r"\d+")


def read_order(answer: str, count: int) -> list[int] | None:
    """Positions from 0, best first, as far as the answer names them; None if it names none.

    `[2] > [1]`, `2, 1`, a JSON list and lines of either are read; reasoning before `</think>` is
    not. A number that stands twice counts at its first place, one that names no passage nowhere.
    """
    said = conclusion(answer)
    if is_refusal(said):
        return None
    named = _BRACKETED.findall(said) or _INTEGER.findall(said)
    places = (int(number) - 1 for number in named if len(number) < 10)
    return list(dict.fromkeys(place for place in places if 0 <= place < count)) or None


def read_grade(answer: str) -> float | None:
    """A grade from 0 to 10; None where the answer holds none, or several that contradict.

    In this order: the grade called final, a line that is nothing but a grade, the number that is
    called a score, a number where a grade would stand, yes (10) or no (0). The scale itself ("0 to
    10", "out of 10") is never taken for the grade.
    """
    said = conclusion(answer).strip()
    if is_refusal(said):
        return None
    plain = _without_scale(_MARKUP.sub(" ", said))
    for pattern in (_FINAL, _ALONE, _LABELLED, _IN_PLACE):
        grades = {_grade(match[1]) for match in pattern.finditer(plain)}
        if grades:
            return grades.pop() if len(grades) == 1 else None
    word = _YES_OR_NO.match(plain)
    return None if word is None else 10.0 if word[1].lower() == "yes" else 0.0


_MARKUP = re.compile(r"</?|[>{}\[\]*_`\"'\\#|$]")
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBER = rf"(?<![\w.,/%+-])(\d{{1,2}}(?:[.,]\d+)?|{'|'.join(_WORDS)})(?![\w%]|[.,/]\s?\d|\s*/)"
_LABEL = r"(?:score|grade|rating|relevance|rate|boxed|points?|answer)"
_FLAGS = re.IGNORECASE | re.MULTILINE
_FINAL = re.compile(rf"\b(?:final|overall)\b[^\d\n]{{0,40}}?{_NUMBER}", _FLAGS)
_ALONE = re.compile(rf"^\W*(?:{_LABEL}\b\W*)?{_NUMBER}\W*$", _FLAGS)
_LABELLED = re.compile(rf"\b{_LABEL}[ds]?\b[^\d\n.]{{0,30}}?{_NUMBER}", _FLAGS)
_IN_PLACE = re.compile(
    rf"(?:^\W*|[:=]\s*|\b(?:is|an?|it|give|gives|get|gets|deserves?|as|at)\s+){_NUMBER}"
    r"(?=\s*(?:$|[.,;:!)–—-]|because\b|since\b|for\b|as\b|points?\b))",
    _FLAGS,
)
_YES_OR_NO = re.compile(r"\W*(yes|no)\b", re.IGNORECASE)
_RANGE = re.compile(
    r"\b(?:on |of |from |between )*(?:an? |the )?(?:\d+(?:\.\d+)?\s*-?\s*point )?(?:scale )?"
    r"(?:of |from |between )*\(?\d+(?:\.\d+)?\s*(?:-|–|—|to|and|through)\s*\d+(?:\.\d+)?\)?",
    re.IGNORECASE,
)
_OUT_OF_TEN = re.compile(r"(?:/|\b(?:out )?of(?: a possible)?)\s*\(?(?:10(?:\.0+)?|ten)\b\)?", re.I)
_SHARE = re.compile(r"\d+(?:\.\d+)?\s*(?:/|of|out of)\s*(?:the\s+)?\d+", re.I)


def _without_scale(text: str) -> str:
    """The text without the scale, and without numbers that are ranges or shares of something."""
    for pattern in (_OUT_OF_TEN, _RANGE, _SHARE):
        text = pattern.sub(" ", text)
    return text


def _grade(number: str) -> float | None:
    """The number, if it lies on the scale."""
    lower = number.lower()
    value = float(_WORDS.index(lower)) if lower in _WORDS else float(lower.replace(",", "."))
    return value if value <= 10 else None
