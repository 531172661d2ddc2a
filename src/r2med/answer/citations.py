"""Citations of numbered passages in an answer, and their precision and recall."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

_THOUGHT = re.compile(r".*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_NUMBERS = r"\d{1,3}(?:\s*(?:[,;&–-]|and)\s*(?:passages?\s+|\[)?\d{1,3})*"
#: "[1]", "[1, 3]", "[2-4]", "[Passage 2]", "【1】"; "passage 2", "Passages 1 and 3".
_CITATION = re.compile(
    rf"[\[【]\s*(?:(?:passages?|sources?|doc(?:ument)?s?|refs?)\.?\s*)?(?P<bracketed>{_NUMBERS})\s*[\]】]"
    rf"|\bpassages?\s+(?:no\.?\s*|number\s+|#)?(?P<worded>{_NUMBERS})\b",
    re.IGNORECASE,
)
_RANGE = re.compile(r"(\d{1,3})\s*[–-]\s*(\d{1,3})")
_NUMBER = re.compile(r"\d{1,3}")
#: A longer range is a range of values, not of passages.
_LONGEST_RANGE = 20


@dataclass(frozen=True)
class CitationScores:
    """Precision and recall of one answer's citations; None if a share is undefined."""

    precision: float | None
    """Cited passages that are relevant / cited numbers; a number without a passage is wrong."""
    recall: float | None
    """Cited passages that are relevant / relevant passages that were shown."""


def read_citations(text: str) -> tuple[int, ...]:
    """Return the cited passage numbers, each once, in order of first mention."""
    cited: dict[int, None] = {}
    for match in _CITATION.finditer(_THOUGHT.sub("", text)):
        for number in _expand(match["bracketed"] or match["worded"]):
            cited[number] = None
    return tuple(cited)


@dataclass(frozen=True)
class AnswerPiece:
    """A part of an answer; `number` is the passage that it cites, if it is a citation."""

    text: str
    number: int | None = None


def split_citations(text: str, passages: int) -> list[AnswerPiece]:
    """Split an answer at citations; a citation of several passages gets the first one's number."""
    parts: list[AnswerPiece] = []
    last = 0
    for match in _CITATION.finditer(text):
        numbers = [n for n in _expand(match["bracketed"] or match["worded"]) if 1 <= n <= passages]
        if numbers:
            parts += [AnswerPiece(text[last : match.start()]), AnswerPiece(match[0], numbers[0])]
            last = match.end()
    parts.append(AnswerPiece(text[last:]))
    return [part for part in parts if part.text]


def score_citations(cited: Collection[int], relevant: Collection[int]) -> CitationScores:
    """Score cited numbers against the numbers of the relevant passages that were shown."""
    right = len(set(cited) & set(relevant))
    return CitationScores(
        precision=right / len(set(cited)) if cited else None,
        recall=right / len(set(relevant)) if relevant else None,
    )


def _expand(numbers: str) -> list[int]:
    """Return the numbers of a list with ranges, as in "1, 3-5"."""
    expanded: list[int] = []
    rest_of_list = numbers
    for span in _RANGE.finditer(numbers):
        first, last = int(span[1]), int(span[2])
        if first < last <= first + _LONGEST_RANGE:
            expanded += range(first, last + 1)
            rest_of_list = rest_of_list.replace(span[0], "")
    expanded += [int(number) for number in _NUMBER.findall(rest_of_list)]
    return sorted(dict.fromkeys(expanded))
