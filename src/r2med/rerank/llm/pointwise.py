"""Pointwise reranking: a model grades each passage by itself."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from r2med.rerank.llm.answers import read_grade
from r2med.rerank.llm.completing import Opener
from r2med.rerank.llm.prompting import filled, shortened
from r2med.rerank.llm.reranker import (
    Asking,
    LlmReranker,
    Tally,
    opener_of,
    scores_of,
    whole_number,
)
from r2med.rerank.scores import Candidates, ListScores
from r2med.retrieve.conditions import Conditions


class PointwiseReranker(LlmReranker):
    """Grades from a language model; equal grades keep the order of the first stage."""

    style = "pointwise"
    places = ("query", "passage")

    def __init__(
        self, name: str, opener: Opener, conditions: Conditions, *, words: int = 400
    ) -> None:
        super().__init__(name, opener, conditions, words=words)

    def scores(self, lists: Sequence[Candidates]) -> list[ListScores]:
        """Grade every passage, then order each list."""
        tally, found, done = Tally(), [], 0
        total = sum(len(one.documents) for one in lists)
        with self.opener.open() as completer:
            asking = Asking(self.name, completer, self.conditions, total, time.perf_counter())
            for one in lists:
                answers = asking.ask([self._prompt(one, text) for text in one.documents], done)
                done += len(answers)
                found.append(scores_of(_order([_grade(answer, tally) for answer in answers])))
            costs = dict(completer.costs())
        self._note(total, costs, tally)
        return found

    def _prompt(self, one: Candidates, text: str) -> str:
        passage = shortened(text, self.words)
        return filled(self.prompt, query=one.query.strip(), passage=passage)


def build(name: str, fields: Mapping[str, object], conditions: Conditions) -> PointwiseReranker:
    """A pointwise reranker as an entry describes it."""
    return PointwiseReranker(
        name,
        opener_of("pointwise", fields, conditions),
        conditions,
        words=whole_number(fields, "words", name, 1),
    )


def _grade(answer: str, tally: Tally) -> float | None:
    tally.answers += 1
    grade = read_grade(answer)
    tally.malformed += grade is None
    return grade


def _order(grades: Sequence[float | None]) -> list[int]:
    """Best grade first; a passage without a grade keeps the place the first stage gave it."""
    graded = [(place, grade) for place, grade in enumerate(grades) if grade is not None]
    best = iter(sorted(graded, key=lambda told: -told[1]))
    return [place if grade is None else next(best)[0] for place, grade in enumerate(grades)]
