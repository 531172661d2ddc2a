"""Whether an answer is correct: options, normalised match, token F1 and judged correctness.

Pure functions of texts. The normalisation and both measures are those of SQuAD (Rajpurkar et al.,
2016): lower case, no punctuation, no articles, single spaces; the best
of several references counts.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from r2med.answer.options import find_options, read_option, reference_option

Correctness = Literal["correct", "partly", "wrong", "abstained"]

#: The correctness that each grade of the rubric `correctness` means.
GRADES: Mapping[int, Correctness] = {0: "abstained", 1: "wrong", 2: "partly", 3: "correct"}
#: What each correctness counts for.
POINTS: Mapping[Correctness, float] = {
    "correct": 1.0,
    "partly": 0.5,
    "wrong": 0.0,
    "abstained": 0.0,
}
#: The most words of a reference that counts as a short answer.
MOST_SHORT_WORDS = 10

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = frozenset(string.punctuation)
_THOUGHT = re.compile(r".*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_ANSWER_TAG = re.compile(r"<answer>(.*?)(?:</answer>|$)", re.DOTALL | re.IGNORECASE)
_BOXED = re.compile(r"\\boxed\{(?:\\text\{)?([^{}]*)\}")
_ANSWER_LINE = re.compile(
    r"^[\s>#*_-]*(?:(?:the|my|final|exact|short|correct|best|most|likely)\s+)*"
    r"(?:answer(?:\s+to\s+(?:the|this)\s+question)?|diagnosis)[*_\s]*(?::|is\b)[*_:]*\s*"
    r"(\S.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_NEXT_FIELD = re.compile(
    r"^[\s>#*_-]*(?:because|explanation|reasoning|reason|rationale|evidence|citations?|sources?|"
    r"references?|confidence)[*_\s]*:",
    re.IGNORECASE | re.MULTILINE,
)
_CITATION_MARKS = re.compile(r"\s*\[\s*\d+(?:\s*[,;–-]\s*\d+)*\s*\]")
_IN_PARENTHESES = re.compile(r"\s*\([^()]*\)")
_ABSTENTIONS = re.compile(
    r"\binsufficient\s+(?:evidence|information|data|context)\b"
    r"|\bnot\s+enough\s+(?:evidence|information|data|context)\b"
    r"|\bevidence\s+(?:is|was)\s+(?:insufficient|not\s+sufficient)\b"
    r"|\b(?:passages?|evidence|context|information|documents?)\s+(?:provided\s+|given\s+|above\s+)?"
    r"(?:do(?:es)?\s+not|don't|doesn't|cannot|can't)\s+"
    r"(?:suffice|(?:contain|provide|give|have)\s+(?:enough|sufficient))\b"
    r"|\b(?:i\s+(?:do\s+not|don't)\s+know|i\s+am\s+not\s+able\s+to\s+answer|"
    r"(?:cannot|can't|unable\s+to|not\s+possible\s+to)\s+(?:be\s+)?"
    r"(?:answer(?:ed)?|determined?|say|tell|conclude)\b)",
    re.IGNORECASE,
)
#: Words of an answer beyond which a phrase of abstention inside it is only a remark.
_MOST_ABSTAINING_WORDS = 15


@dataclass(frozen=True)
class AnswerScores:
    """The scores of one answer; None if a score does not apply."""

    option: float | None
    """1.0 if the right option was chosen, else 0.0; None for questions without options."""
    match: float
    """1.0 if the normalised final answer equals a reference, else 0.0."""
    f1: float
    """Token F1 of the final answer with the best reference."""
    abstained: bool
    """Whether the answer says that the evidence does not suffice."""
    judged: Correctness | None = None
    """The decision of a judge model or a person."""


def score_answer(
    text: str, reference: str, *, question: str = "", judged: Correctness | None = None
) -> AnswerScores:
    """Score the text of a model against the reference answer of a question.

    Args:
        text: The whole text of the model; its final answer is read from it.
        reference: The reference answer.
        question: The question, which may list options.
        judged: The grade of a judge, if one was asked.
    """
    answer = final_answer(text)
    options = find_options(question)
    right_option = reference_option(reference, options)
    chosen = read_option(text, options) if right_option else None
    references = reference_forms(reference, options)
    return AnswerScores(
        option=float(chosen == right_option) if right_option else None,
        match=float(is_match(answer, references)),
        f1=token_f1(answer, references),
        abstained=judged == "abstained" or (chosen is None and is_abstention(text)),
        judged=judged,
    )


def final_answer(text: str) -> str:
    r"""Return the final answer in the text of a model, without citation marks.

    Text up to `</think>` is ignored. Then an `<answer>` tag, a `\boxed{}`, or the last line that
    begins with "Answer:" gives the answer. Without any of them, all of the text is the answer.
    """
    spoken = _THOUGHT.sub("", text).strip() or text.strip()
    for pattern in (_ANSWER_TAG, _BOXED, _ANSWER_LINE):
        candidates = [match[1] for match in pattern.finditer(spoken) if match[1].strip()]
        if candidates:
            spoken = candidates[-1]
            break
    next_field = _NEXT_FIELD.search(spoken)
    if next_field and spoken[: next_field.start()].strip():
        spoken = spoken[: next_field.start()]
    return _CITATION_MARKS.sub("", spoken).strip().strip("*_` ").strip()


def is_abstention(text: str) -> bool:
    """Whether an answer says that it cannot be given for lack of evidence.

    A long answer that only mentions missing evidence is an answer.
    """
    answer = final_answer(text)
    if not _ABSTENTIONS.search(answer):
        return False
    return len(answer.split()) <= _MOST_ABSTAINING_WORDS or bool(_ABSTENTIONS.match(answer))


def normalise(text: str) -> str:
    """Return a text in lower case without punctuation, articles and repeated spaces (SQuAD)."""
    lower = "".join(character for character in text.lower() if character not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", lower).split())


def is_match(answer: str, references: Sequence[str]) -> bool:
    """Whether a normalised answer equals one of the normalised references."""
    return normalise(answer) in [normalise(reference) for reference in references]


def token_f1(answer: str, references: Sequence[str]) -> float:
    """Return the harmonic mean of token precision and recall with the best reference."""
    tokens = normalise(answer).split()
    return max((_f1(tokens, normalise(reference).split()) for reference in references), default=0.0)


def _f1(tokens: Sequence[str], reference: Sequence[str]) -> float:
    if not tokens or not reference:
        return float(list(tokens) == list(reference))
    shared = (Counter(tokens) & Counter(reference)).total()
    return 2 * shared / (len(tokens) + len(reference))


def reference_forms(reference: str, options: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the wordings of a reference that count as equal.

    These are the reference, the reference without its parentheses, and, if the question has
    options, the text of the right option.
    """
    forms = [reference.strip(), _IN_PARENTHESES.sub("", reference).strip()]
    right_option = reference_option(reference, options or {})
    if right_option and options:
        forms.append(options[right_option])
    return tuple(dict.fromkeys(form for form in forms if form))


def is_short(reference: str) -> bool:
    """Whether a reference is short enough for match and token F1 to decide."""
    return len(_IN_PARENTHESES.sub("", reference).split()) <= MOST_SHORT_WORDS
