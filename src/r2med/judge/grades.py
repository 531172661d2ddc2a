"""Read the scores of a rubric from whatever a judge wrote.

Judges write JSON, JSON inside prose or code fences, labelled lines, tags, Markdown and words. All
are read; an answer whose scores are missing, off the scale or contradictory is unreadable, and the
reason is kept so that it can be counted and reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from r2med.expand.answers import is_refusal
from r2med.judge.rubric import LOWEST, Rubric, ScoreScale
from r2med.rerank.llm_answers import split_thought

#: Characters of an answer that are read, and of a rationale that are kept.
_LONGEST, _RATIONALE = 100_000, 2_000
_OBJECT = re.compile(r"\{[^{}]*\}")
_TRAILING_COMMA = re.compile(r",\s*([}\]])")
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBER = rf"([+-]?\d+(?:\.\d+)?|{'|'.join(_WORDS)})"
_ALONE = re.compile(rf"\W*{_NUMBER}(?:\s*/\s*\d+)?\W*", re.IGNORECASE)
_LEADING = re.compile(rf"\W*{_NUMBER}\s*(?:[=:,;)\n–-]|\.(?!\d))", re.IGNORECASE)
_CALLED = re.compile(
    rf"\b(?:grade|score|rating|digit|relevance|answer)\b\s*(?:[:=]|\bis\b|\bof\b)\s*{_NUMBER}\b",
    re.IGNORECASE,
)
_ANY_NUMBER = re.compile(rf"(?<![\w.]){_NUMBER}(?!\w)", re.IGNORECASE)
_OUT_OF = re.compile(r"(?:/|\bout of)\s*\d+", re.IGNORECASE)
_MARKUP = re.compile(r"[*_`#|\"'\[\]]+")
_RATIONALES = ("rationale", "reason", "explanation", "justification")
_FINAL = re.compile(r"\bfinal\b", re.IGNORECASE)


@dataclass(frozen=True)
class Reading:
    """The scores in an answer, or the problem that makes the answer unreadable."""

    scores: Mapping[str, int]
    rationale: str = ""
    problem: str = ""
    """One of: refused, empty, missing, contradictory, off the scale; "" if readable."""

    @property
    def is_readable(self) -> bool:
        """Whether the answer has the scores that the grade needs."""
        return not self.problem


def read_grades(text: str, rubric: Rubric) -> Reading:
    """Return the scores of a rubric in an answer.

    Scores that the grade does not need may be missing. A JSON object is preferred to labelled
    lines, and the last object to earlier ones, because judges restate the format before they
    answer. Labelled lines that contradict each other are unreadable unless one is called final.
    """
    thought, conclusion = split_thought(text[:_LONGEST])
    if not conclusion:
        return Reading({}, problem="empty")
    numbers = _read_json(conclusion, rubric) or _read_labels(conclusion, rubric)
    if not numbers:
        lone = _read_alone(conclusion, rubric)
        numbers = {} if lone is None else {rubric.graded_scores[0].name: {lone}}
    if not numbers and is_refusal(conclusion):
        return Reading({}, problem="refused")
    rationale = _find_rationale(conclusion) or thought or conclusion
    problem = _find_problem(numbers, rubric)
    if problem:
        return Reading({}, problem=problem)
    scores = {}
    for score in rubric.scores:
        values = numbers.get(score.name, set())
        if len(values) == 1 and _is_on_scale(score, next(iter(values))):
            scores[score.name] = int(next(iter(values)))
    return Reading(scores, rationale[:_RATIONALE].strip())


Numbers = dict[str, set[float]]


def _find_problem(numbers: Numbers, rubric: Rubric) -> str:
    for score in rubric.graded_scores:
        values = numbers.get(score.name, set())
        if not values:
            return "missing"
        if len(values) > 1:
            return "contradictory"
        if not _is_on_scale(score, next(iter(values))):
            return "off the scale"
    return ""


def _is_on_scale(score: ScoreScale, value: float) -> bool:
    return value.is_integer() and score.least <= value <= score.most


def _read_json(text: str, rubric: Rubric) -> Numbers:
    """Return the scores in the last JSON object that has all scores the grade needs."""
    needed = {score.name for score in rubric.graded_scores}
    for values in reversed(list(_objects(text))):
        lowered = {str(key).strip().lower(): value for key, value in values.items()}
        numbers: Numbers = {}
        for score in rubric.scores:
            number = _number(lowered.get(score.name))
            if number is not None:
                numbers[score.name] = {number}
        if needed <= numbers.keys():
            return numbers
    return {}


def _objects(text: str) -> Iterator[dict[str, Any]]:
    for match in _OBJECT.finditer(text):
        candidate = _TRAILING_COMMA.sub(r"\1", match[0])
        for attempt in (candidate, candidate.replace("'", '"')):
            try:
                values = json.loads(attempt)
            except (ValueError, RecursionError):
                continue
            if isinstance(values, dict):
                yield values
                break


def _read_labels(text: str, rubric: Rubric) -> Numbers:
    """Return the numbers after each score's name or its first letter, as in `overall: 2`, `O: 2`.

    Ranges such as "overall (0 to 3)" are not scores.
    """
    initials = [score.name[0] for score in rubric.scores]
    lines = [_MARKUP.sub(" ", line) for line in text.splitlines()]
    numbers: Numbers = {}
    for score in rubric.scores:
        names = [re.escape(score.name)]
        if initials.count(score.name[0]) == 1:
            names.append(rf"{score.name[0]}(?=\s*[:=])")
        label = re.compile(
            rf"(?:^|[^\w])(?:{'|'.join(names)})\b(?:\s+(?:score|grade|rating))?"
            rf"(?:\s*\([^)\n]*\))?\s*(?:[:=>-]+|\bis\b|\bof\b)?\s*{_NUMBER}"
            rf"(?!\s*(?:to|-|–|\.\.)\s*\d)(?!\d|\.\d)(?:\s*(?:/|out of)\s*\d+)?",
            re.IGNORECASE,
        )
        marked = [
            (bool(_FINAL.search(line)), _number(match[1]))
            for line in lines
            for match in label.finditer(line)
        ]
        final = {value for is_final, value in marked if is_final and value is not None}
        values = final or {value for _, value in marked if value is not None}
        if values:
            numbers[score.name] = values
    return numbers


def _read_alone(text: str, rubric: Rubric) -> float | None:
    """Return the number of an answer that has one number only, if the grade is a single score.

    The answer is nothing else, begins with the number as in `2 = helps`, or calls it a grade,
    score, rating, digit, relevance or answer.
    """
    if rubric.grade == LOWEST and len(rubric.scores) > 1:
        return None
    plain = _MARKUP.sub(" ", text).strip()
    match = _ALONE.fullmatch(plain) or _LEADING.match(plain) or _CALLED.search(plain)
    distinct = {_number(number) for number in _ANY_NUMBER.findall(_OUT_OF.sub(" ", plain))}
    return _number(match[1]) if match and len(distinct) == 1 else None


def _find_rationale(text: str) -> str:
    for values in reversed(list(_objects(text))):
        for name in _RATIONALES:
            if isinstance(values.get(name), str) and values[name].strip():
                return str(values[name])
    return ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    match = _ALONE.fullmatch(str(value).strip())
    if match is None:
        return None
    text = match[1].lower()
    return float(_WORDS.index(text)) if text in _WORDS else float(text)
