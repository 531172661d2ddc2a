"""What the LLM rerankers share: a model that is opened when needed, and honest counting."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from r2med.errors import UsageError
from r2med.remote.registry import find_llm
from r2med.rerank.llm.completing import ChatOpener, Completer, Opener
from r2med.rerank.llm.prompting import load_prompt
from r2med.rerank.scores import ListScores
from r2med.retrieve.conditions import Conditions, Progress

#: Prompts given to a model at a time, so that progress shows and memory stays small.
_BATCH = 256


@dataclass
class Tally:
    """How the answers were; a malformed one keeps the order that was there."""

    answers: int = 0
    malformed: int = 0
    partial: int = 0

    def tell(self, name: str, conditions: Conditions) -> None:
        """Say what a reader of the scores must know."""
        if self.malformed:
            conditions.tell(
                f"{name}: {self.malformed:,} of {self.answers:,} answers could not be read; the "
                "first stage's order was kept there."
            )
        if self.partial:
            conditions.tell(
                f"{name}: {self.partial:,} of {self.answers:,} answers left passages out; those "
                "follow in the order they had."
            )


@dataclass(frozen=True)
class Asking:
    """A completer at work, with progress."""

    name: str
    completer: Completer
    conditions: Conditions
    total: int
    start: float

    def ask(self, prompts: Sequence[str], done: int) -> list[str]:
        """Answers to the prompts, after so many before them."""
        answers: list[str] = []
        for first in range(0, len(prompts), _BATCH):
            answers += self.completer.complete(prompts[first : first + _BATCH])
            spent = time.perf_counter() - self.start
            told = Progress(f"reranking with {self.name}", done + len(answers), self.total, spent)
            self.conditions.progress(told)
        return answers


class LlmReranker:
    """A model and a prompt; how lists are asked about is a subclass's own."""

    style: ClassVar[str]
    """The prompt's name, and the kind of reranker in identities."""
    places: ClassVar[tuple[str, ...]]
    """What the prompt must have room for."""

    def __init__(self, name: str, opener: Opener, conditions: Conditions, *, words: int) -> None:
        self.name = name
        self.opener = opener
        self.conditions = conditions
        self.words = words
        self.prompt = load_prompt(self.style, self.places, conditions.prompts)
        self._facts: Mapping[str, object] = {}

    @property
    def identity(self) -> Mapping[str, object]:
        """The model, the prompt and how much of a passage is shown."""
        return {
            "reranker": self.style,
            "llm": dict(self.opener.identity),
            "prompt": hashlib.sha256(self.prompt.encode()).hexdigest()[:16],
            "words": self.words,
        }

    def facts(self) -> Mapping[str, object]:
        """Costs, and how many answers could not be read."""
        return self._facts

    def _note(self, texts: int, costs: Mapping[str, object], tally: Tally) -> None:
        """Keep what the work took, and say what a reader of the scores must know."""
        tally.tell(self.name, self.conditions)
        self._facts = {"texts": texts, **costs, **asdict(tally)}


def opener_of(name: str, fields: Mapping[str, object], conditions: Conditions) -> Opener:
    """The model that an entry names; unless told otherwise as sure of itself as it can be."""
    llm = str(fields["llm"])
    if not llm:
        raise UsageError(f"{name}: no language model is given. Name one as in {name}:gpt4.")
    options: dict[str, str] = {}
    temperature, most = str(fields["temperature"]), int(str(fields["max_tokens"]))
    if temperature == "auto" and find_llm(llm, anything=True).temperature is not None:
        temperature = "0"
    if temperature != "auto":
        options["temperature"] = temperature
    if most:
        options["max_tokens"] = str(most)
    return ChatOpener(llm, conditions, options)


def whole_number(fields: Mapping[str, object], key: str, name: str, least: int) -> int:
    """A field that must be a number from `least`."""
    value = int(str(fields[key]))
    if value < least:
        raise UsageError(f"{name}[{key}={value}]: expected {least} or more.")
    return value


def scores_of(order: Sequence[int]) -> ListScores:
    """The first place scores the length of the list, the last one 1."""
    scores = np.zeros(len(order), dtype=np.float32)
    scores[list(order)] = np.arange(len(order), 0, -1)
    return scores
