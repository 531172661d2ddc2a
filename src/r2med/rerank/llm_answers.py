"""Read an order, scores or a grade from what a language model wrote, in whatever form.

A model may write anything, so every pattern takes time in proportion to the text: repetitions next
to each other are bounded, and a run of digits or spaces is entered only at its beginning.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from r2med.expand.answers import is_refusal

_BRACKETED = re.compile(r"\[\s*(\d+)\s*\]")
_INTEGER = re.compile(r"\d+")
_SCORED = re.compile(
    r"(?:\[(\d{1,9})\]{1,3}[\"']?|[\"'](\d{1,9})[\"'])"
    r"\s{0,9}:\s{0,9}[\"']?(\d{1,9}(?:\.\d{1,30})?)(?![\d.])"
)
#: Characters of a conclusion in which scores are looked for.
_LONGEST = 100_000
#: Characters at the beginning and at the end of a conclusion in which a grade is looked for.
_LONGEST_PART = 4_000
_END_OF_THOUGHT = re.compile(r"</(?:think|reason)>")
_THOUGHT_MARKS = re.compile(r"</?(?:think|reason)>")


class Order(NamedTuple):
    """Positions from 0, best first, as far as an answer names them, and what was wrong with it."""

    places: list[int]
    repeated: bool
    invented: bool


def split_thought(text: str) -> tuple[str, str]:
    """Thought and conclusion; a thought that never ends concludes nothing.

    The conclusion is what stands between the last <answer> tags, where there are any, also after a
    thought that was never closed; else what follows the end of the thought.
    """
    ends = list(_END_OF_THOUGHT.finditer(text))
    thought, rest = (text[: ends[-1].end()], text[ends[-1].end() :]) if ends else ("", text)
    before, tag, tagged = rest.rpartition("<answer>")
    if tag:
        thought, rest = thought + before, tagged.partition("</answer>")[0]
    elif not ends and _THOUGHT_MARKS.search(text):
        thought, rest = text, ""
    return _THOUGHT_MARKS.sub("", thought).strip(), rest.strip()


def read_order(conclusion: str, count: int) -> Order | None:
    """The order that a conclusion names; None if it names no passage.

    `[2] > [1]`, `2, 1`, a JSON list and lines of either are read. One rule mends them all: a number
    that stands twice counts at its first place, and one that names no passage nowhere.
    """
    if is_refusal(conclusion):
        return None
    named = _BRACKETED.findall(conclusion) or _INTEGER.findall(conclusion)
    numbers = [int(number) - 1 for number in named if len(number) < 10]
    places = [place for place in numbers if 0 <= place < count]
    if not places:
        return None
    distinct = list(dict.fromkeys(places))
    return Order(distinct, len(distinct) < len(places), len(places) < len(named))


def read_scores(conclusion: str, count: int) -> tuple[dict[int, float], Order] | None:
    """Scores from 0 to 10 by position, as in `{"[1]": 5, "[2]": 3}`; None if there are none.

    The same rule as for orders. A number in brackets or quotes names a passage; broken JSON is read
    as far as it goes, and a score off the scale is none.
    """
    named = _SCORED.findall(conclusion[:_LONGEST])
    rows = [(int(name or quoted) - 1, float(score)) for name, quoted, score in named]
    known = [(place, score) for place, score in rows if 0 <= place < count and score <= 10]
    if not known:
        return None
    scores: dict[int, float] = {}
    for place, score in known:
        scores.setdefault(place, score)
    return scores, Order(list(scores), len(scores) < len(known), len(known) < len(rows))


def read_grade(conclusion: str) -> float | None:
    """A grade from 0 to 10; None where the conclusion holds none, or several that contradict.

    In this order: the grade called final, a line that is nothing but a grade, the number that is
    called a score, a number where a grade would stand, yes (10) or no (0). The scale itself ("0 to
    10", "out of 10") is never taken for the grade.
    """
    if is_refusal(conclusion):
        return None
    if len(conclusion) > 2 * _LONGEST_PART:
        conclusion = f"{conclusion[:_LONGEST_PART]}\n{conclusion[-_LONGEST_PART:]}"
    plain = _MARKUP.sub(" ", conclusion)
    for not_a_grade in (_OUT_OF_TEN, _RANGE, _SHARE):
        plain = not_a_grade.sub(" ", plain)
    for pattern in (_FINAL, _ALONE, _LABELLED, _IN_PLACE):
        grades = {_grade(match[1]) for match in pattern.finditer(plain)}
        if grades:
            return grades.pop() if len(grades) == 1 else None
    word = _YES_OR_NO.match(plain)
    return None if word is None else 10.0 if word[1].lower() == "yes" else 0.0


_MARKUP = re.compile(r"</?|[>{}\[\]*_`\"'\\#|$]")
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBER = (
    rf"(?<![\w.,/%+-])(\d{{1,2}}(?:[.,]\d{{1,30}})?|{'|'.join(_WORDS)})"
    r"(?![\w%]|[.,/]\s?\d|\s{0,9}/)"
)
_LABEL = r"(?:score|grade|rating|relevance|rate|boxed|points?|answer)"
_FLAGS = re.IGNORECASE | re.MULTILINE
_FINAL = re.compile(rf"\b(?:final|overall)\b[^\d\n]{{0,40}}?{_NUMBER}", _FLAGS)
_ALONE = re.compile(rf"^\W{{0,40}}(?:{_LABEL}\b\W{{0,40}})?{_NUMBER}\W{{0,40}}$", _FLAGS)
_LABELLED = re.compile(rf"\b{_LABEL}[ds]?\b[^\d\n.]{{0,30}}?{_NUMBER}", _FLAGS)
_IN_PLACE = re.compile(
    rf"(?:^\W{{0,40}}|[:=]\s{{0,9}}|\b(?:is|an?|it|gives?|gets?|deserves?|as|at)\s{{1,9}}){_NUMBER}"
    r"(?=\s{0,9}(?:$|[.,;:!)–—-]|because\b|since\b|for\b|as\b|points?\b))",
    _FLAGS,
)
_YES_OR_NO = re.compile(r"\W*(yes|no)\b", re.IGNORECASE)
#: A number of at most so many digits, from its first digit on.
_DIGITS = r"(?<!\d)\d{1,9}(?:\.\d{1,30})?"
_RANGE = re.compile(
    rf"\b(?:on |of |from |between ){{0,3}}(?:an? |the )?(?:{_DIGITS}\s{{0,9}}-?\s{{0,9}}point )?"
    rf"(?:scale )?(?:of |from |between ){{0,3}}\(?{_DIGITS}\s{{0,9}}(?:-|–|—|to|and|through)"
    rf"\s{{0,9}}{_DIGITS}\)?",
    re.IGNORECASE,
)
_OUT_OF_TEN = re.compile(
    r"(?:/|\b(?:out )?of(?: a possible)?)\s{0,9}\(?(?:10(?:\.0{1,30})?|ten)\b\)?", re.I
)
_SHARE = re.compile(rf"{_DIGITS}\s{{0,9}}(?:/|of|out of)\s{{0,9}}(?:the\s{{1,9}})?{_DIGITS}", re.I)


def _grade(number: str) -> float | None:
    """The number, if it lies on the scale."""
    lower = number.lower()
    value = float(_WORDS.index(lower)) if lower in _WORDS else float(lower.replace(",", "."))
    return value if value <= 10 else None
