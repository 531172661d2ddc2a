"""Report answers of language models that could not be used, in tables, exports and pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from r2med.results.record import Result
from r2med.results.stage_record import AnswerCounts

#: Follows the name of a system if too many answers of its language models have problems.
MARK = "†"


def mark_answers(answers: AnswerCounts | None) -> str:
    """The mark that follows a system's name; empty unless too many answers have problems."""
    return MARK if answers is not None and answers.is_marked else ""


def describe_answers(name: str, answers: AnswerCounts | None) -> str | None:
    """A sentence that counts a system's answers with problems; None if there are none."""
    if answers is None or not answers.problems:
        return None
    mark = f"{MARK} " if answers.is_marked else ""
    return f"{mark}{name}: {answers}."


def count_answers(results: Iterable[Result]) -> dict[str, AnswerCounts | None]:
    """Return the counts of answers of each system, summed over its results."""
    by_name: dict[str, list[AnswerCounts | None]] = {}
    for result in results:
        by_name.setdefault(result.name, []).append(result.summary.answers)
    return {name: AnswerCounts.sum_over(counts) for name, counts in by_name.items()}


def answer_notes(results: Iterable[Result]) -> Iterator[str]:
    """Yield a sentence for each system whose answers have problems."""
    for name, answers in count_answers(results).items():
        if note := describe_answers(name, answers):
            yield note
