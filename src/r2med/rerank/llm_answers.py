"""Parse an order, scores or a grade from the text of a language model, in any format.

The time for every pattern is linear in the length of the text, whatever a model writes: adjacent
repetitions are bounded, and a run of digits or spaces is matched only from its beginning.
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
#: Characters of a conclusion that are searched for scores.
_LONGEST = 100_000
#: Characters at the beginning and at the end of a conclusion that are searched for a grade.
_LONGEST_PART = 4_000
_END_OF_THOUGHT = re.compile(r"</(?:think|reason)>")
_THOUGHT_MARKS = re.compile(r"</?(?:think|reason)>")


class Order(NamedTuple):
    """The passages that an answer names, best first, and the problems of the answer."""

    indexes: list[int]
    """Indexes of the passages in the prompt, counted from 0."""
    repeated: bool
    """Whether a passage was named twice; only its first mention counts."""
    invented: bool
    """Whether a number was named that is not a passage; such numbers are ignored."""


def split_thought(text: str) -> tuple[str, str]:
    """Split a text into thought and conclusion.

    The conclusion is the text between the last <answer> tags, even if a thought before it was never
    closed. Without such tags, it is the text after the thought; it is empty if the thought never
    ends.
    """
    ends = list(_END_OF_THOUGHT.finditer(text))
    end = ends[-1].end() if ends else 0
    thought, conclusion = text[:end], text[end:]
    before_tag, tag, after_tag = conclusion.rpartition("<answer>")
    if tag:
        thought += before_tag
        conclusion = after_tag.partition("</answer>")[0]
    elif not ends and _THOUGHT_MARKS.search(text):
        thought, conclusion = text, ""
    return _THOUGHT_MARKS.sub("", thought).strip(), conclusion.strip()


def read_order(conclusion: str, count: int) -> Order | None:
    """Return the order of passages in a conclusion; None if it names no passage.

    Formats are `[2] > [1]`, `2, 1`, a JSON list and lines of these. If a number is repeated, its
    first mention counts; a number that is not a passage is ignored.
    """
    if is_refusal(conclusion):
        return None
    numbers = _BRACKETED.findall(conclusion) or _INTEGER.findall(conclusion)
    indexes = [int(number) - 1 for number in numbers if len(number) < 10]
    valid = [index for index in indexes if 0 <= index < count]
    if not valid:
        return None
    distinct = list(dict.fromkeys(valid))
    return Order(distinct, repeated=len(distinct) < len(valid), invented=len(valid) < len(numbers))


def read_scores(conclusion: str, count: int) -> tuple[dict[int, float], Order] | None:
    """Return the scores in a conclusion by passage index, and the order in which it names them.

    Scores are 0 to 10, as in `{"[1]": 5, "[2]": 3}`; None is returned if there are none. Repeated
    and unknown numbers are treated as in `read_order`. A number in brackets or quotes is a passage;
    broken JSON is read as far as possible, and a score above 10 is ignored.
    """
    matches = _SCORED.findall(conclusion[:_LONGEST])
    rows = [(int(bracketed or quoted) - 1, float(score)) for bracketed, quoted, score in matches]
    valid = [(index, score) for index, score in rows if 0 <= index < count and score <= 10]
    if not valid:
        return None
    scores: dict[int, float] = {}
    for index, score in valid:
        scores.setdefault(index, score)
    order = Order(list(scores), repeated=len(scores) < len(valid), invented=len(valid) < len(rows))
    return scores, order


def read_grade(conclusion: str) -> float | None:
    """Return a grade from 0 to 10; None if there is none, or if several contradict each other.

    Tried in this order: a grade called final, a line with only a grade, a number called a score, a
    number at a typical position of a grade, and the words yes (10) or no (0). The scale itself ("0
    to 10", "out of 10") is never read as the grade.
    """
    if is_refusal(conclusion):
        return None
    if len(conclusion) > 2 * _LONGEST_PART:
        conclusion = f"{conclusion[:_LONGEST_PART]}\n{conclusion[-_LONGEST_PART:]}"
    plain = _MARKUP.sub(" ", conclusion)
    for not_a_grade in (_OUT_OF_TEN, _RANGE, _SHARE):
        plain = not_a_grade.sub(" ", plain)
    for pattern in (_FINAL, _ALONE, _LABELLED, _IN_PLACE):
        grades = {_parse_grade(match[1]) for match in pattern.finditer(plain)}
        if grades:
            return grades.pop() if len(grades) == 1 else None
    word = _YES_OR_NO.match(plain)
    if word is None:
        return None
    return 10.0 if word[1].lower() == "yes" else 0.0


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
#: A number with a bounded count of digits, matched from its first digit.
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


def _parse_grade(number: str) -> float | None:
    """Return the value of a number in digits or words; None if it is above 10."""
    lower = number.lower()
    if lower in _WORDS:
        return float(_WORDS.index(lower))
    value = float(lower.replace(",", "."))
    return value if value <= 10 else None
