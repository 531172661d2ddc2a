"""Listwise reranking: a model orders a window of passages, which slides from the end to the top."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from r2med.errors import UsageError
from r2med.rerank.llm.answers import read_order
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


class ListwiseReranker(LlmReranker):
    """Windows of passages, ordered by a language model."""

    style = "listwise"
    places = ("query", "passages")

    def __init__(
        self,
        name: str,
        opener: Opener,
        conditions: Conditions,
        *,
        window: int = 20,
        step: int = 10,
        words: int = 200,
    ) -> None:
        if step > window:
            raise UsageError(
                f"{name}: step={step} is larger than window={window}, so passages between two "
                "windows would never be seen."
            )
        super().__init__(name, opener, conditions, words=words)
        self.window, self.step = window, step

    @property
    def identity(self) -> Mapping[str, object]:
        """The model, the prompt and the windows."""
        return {**super().identity, "window": self.window, "step": self.step}

    def scores(self, lists: Sequence[Candidates]) -> list[ListScores]:
        """All lists go up together, a window each at a time, so that calls can run side by side."""
        orders = [list(range(len(one.documents))) for one in lists]
        starts = [_starts(len(order), self.window, self.step) for order in orders]
        tally, done = Tally(), 0
        with self.opener.open() as completer:
            total = sum(map(len, starts))
            asking = Asking(self.name, completer, self.conditions, total, time.perf_counter())
            for turn in range(max(map(len, starts), default=0)):
                rows = [row for row in range(len(lists)) if turn < len(starts[row])]
                spans = [slice(s := starts[row][turn], s + self.window) for row in rows]
                prompts = [
                    self._prompt(lists[row], orders[row][span])
                    for row, span in zip(rows, spans, strict=True)
                ]
                answers = asking.ask(prompts, done)
                done += len(answers)
                for row, span, answer in zip(rows, spans, answers, strict=True):
                    orders[row][span] = _reordered(orders[row][span], answer, tally)
            costs = dict(completer.costs())
        self._note(sum(map(len, orders)), costs, tally)
        return [scores_of(order) for order in orders]

    def _prompt(self, one: Candidates, places: Sequence[int]) -> str:
        passages = [
            f"[{number}] {shortened(one.documents[place], self.words)}"
            for number, place in enumerate(places, start=1)
        ]
        return filled(
            self.prompt,
            query=one.query.strip(),
            passages="\n\n".join(passages),
            count=str(len(places)),
        )


def build(name: str, fields: Mapping[str, object], conditions: Conditions) -> ListwiseReranker:
    """A listwise reranker as an entry describes it."""
    return ListwiseReranker(
        name,
        opener_of("listwise", fields, conditions),
        conditions,
        window=whole_number(fields, "window", name, 2),
        step=whole_number(fields, "step", name, 1),
        words=whole_number(fields, "words", name, 1),
    )


def _starts(count: int, window: int, step: int) -> list[int]:
    """Where windows begin, from the end of a list to its top; a list of one needs none."""
    if count < 2:
        return []
    starts = list(range(count - window, 0, -step))
    return [*starts, 0]


def _reordered(places: list[int], answer: str, tally: Tally) -> list[int]:
    tally.answers += 1
    named = read_order(answer, len(places))
    if named is None:
        tally.malformed += 1
        return places
    rest = [number for number in range(len(places)) if number not in set(named)]
    tally.partial += bool(rest)
    return [places[number] for number in [*named, *rest]]
