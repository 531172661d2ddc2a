"""A language model that answers as a test says, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from r2med.rerank.scores import Candidates


class Scripted:
    """A completer and its own opener."""

    identity: Mapping[str, object] = {"model": "scripted"}

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.answer = answer
        self.asked: list[str] = []

    @contextmanager
    def open(self) -> Iterator[Scripted]:
        yield self

    def complete(self, prompts: Sequence[str]) -> list[str]:
        self.asked += prompts
        return [self.answer(prompt) for prompt in prompts]

    def costs(self) -> Mapping[str, object]:
        return {"calls": len(self.asked), "tokens": 7 * len(self.asked), "money": 0.5}


def numbered(count: int, query: str = "which?") -> Candidates:
    names = [f"d{n}" for n in range(count)]
    return Candidates("q", query, names, [f"passage {n}" for n in range(count)])


def order_of(scores: Sequence[float]) -> list[int]:
    return sorted(range(len(scores)), key=lambda place: -scores[place])
