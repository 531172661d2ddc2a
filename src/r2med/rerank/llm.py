"""Language models as rerankers: each style asks about a list in its own way, many lists at once.

A style is its settings, a prompt file of its name, and `rank`: a generator that yields the prompts
it wants answered next for one list, receives the answers, and returns the list's scores. Whatever
asks, counts and estimates is shared, so a new style is a dataclass and a file of words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from r2med.errors import DataError, UsageError
from r2med.expand.prompts import Prompt, Shape, longest, read_file, trimmed
from r2med.remote.budget import Estimate
from r2med.remote.chat import Chat, ChatRequest, Message
from r2med.remote.registry import find_llm
from r2med.rerank.llm_answers import read_grade, read_order
from r2med.rerank.scores import Candidates, ListScores
from r2med.retrieve.conditions import Conditions, Progress
from r2med.settings import setting
from r2med.tasks.task import Task

#: Lists that are asked about side by side, so that memory stays small.
_LISTS = 256

#: Yields prompts, receives their answers, returns a score for every document of a list.
Ranking = Generator[list[str], list[str], ListScores]


@dataclass
class Tally:
    """How the answers were; a malformed one keeps the order that was there."""

    answers: int = 0
    malformed: int = 0
    partial: int = 0


@dataclass(frozen=True)
class Style:
    """How lists are asked about: the settings of an entry, and what they mean."""

    name: ClassVar[str]
    """Of the style's prompt file."""
    llm: str = setting(identity="content")
    words: int = setting(least=1)
    temperature: float | Literal["auto"] = setting(least=0)
    max_tokens: int = setting(least=0)

    @property
    def answer_tokens(self) -> int:
        """About how long an answer is that says what was asked for and no more."""
        raise NotImplementedError

    def rank(self, one: Candidates, prompt: Prompt, tally: Tally) -> Ranking:
        """Score one list."""
        raise NotImplementedError


@dataclass(frozen=True)
class Listwise(Style):
    """A model orders a window of passages, which slides from the end of the list to its top."""

    name = "listwise"
    window: int = setting(least=2)
    step: int = setting(least=1)

    @property
    def answer_tokens(self) -> int:
        """Some tokens for every passage of a window."""
        return 5 * self.window

    def rank(self, one: Candidates, prompt: Prompt, tally: Tally) -> Ranking:
        """Ask about one window after another; what an answer leaves out keeps its order below."""
        order = list(range(len(one.documents)))
        for start in self._starts(len(order)):
            places = order[start : start + self.window]
            shown = prompt.passages([one.documents[p] for p in places], words=self.words)
            [answer] = yield [_user(prompt, one, passages=shown, count=str(len(places)))]
            named = read_order(answer, len(places))
            tally.answers += 1
            tally.malformed += named is None
            rest = [place for place in range(len(places)) if place not in set(named or ())]
            tally.partial += bool(named and rest)
            order[start : start + self.window] = [places[n] for n in [*(named or ()), *rest]]
        return _descending(order)

    def _starts(self, count: int) -> list[int]:
        """Where windows begin, from the end of a list to its top; a list of one needs none."""
        return [*range(count - self.window, 0, -self.step), 0] if count > 1 else []


@dataclass(frozen=True)
class Pointwise(Style):
    """A model grades each passage by itself; equal grades keep the order of the first stage."""

    name = "pointwise"
    answer_tokens = 5

    def rank(self, one: Candidates, prompt: Prompt, tally: Tally) -> Ranking:
        """Ask about all passages at once; one without a grade keeps its place in the list."""
        answers = yield [
            _user(prompt, one, passage=trimmed(text, self.words)) for text in one.documents
        ]
        grades = [read_grade(answer) for answer in answers]
        tally.answers += len(grades)
        tally.malformed += grades.count(None)
        graded = [(place, grade) for place, grade in enumerate(grades) if grade is not None]
        best = iter(sorted(graded, key=lambda pair: -pair[1]))
        return _descending(
            [place if grade is None else next(best)[0] for place, grade in enumerate(grades)]
        )


class LlmReranker:
    """A style, a model and a prompt."""

    def __init__(self, name: str, style: Style, conditions: Conditions) -> None:
        if not style.llm:
            raise UsageError(f"{name}: which model? Name it as in {style.name}:gpt4.")
        self.name = name
        self.style = style
        self.conditions = conditions
        self.prompt = read_prompt(style.name, conditions.prompts)
        self._facts: Mapping[str, object] = {}

    @cached_property
    def chat(self) -> Chat:
        """The model, under the conditions of this run; at temperature 0 where it takes one."""
        style, options = self.style, {}
        temperature = style.temperature
        if temperature == "auto" and find_llm(style.llm, anything=True).temperature is not None:
            temperature = 0
        if temperature != "auto":
            options["temperature"] = f"{temperature:g}"
        if style.max_tokens:
            options["max_tokens"] = str(style.max_tokens)
        return self.conditions.remote.chat(style.llm, options)

    @property
    def identity(self) -> Mapping[str, object]:
        """The model and the prompt; the settings stand beside it."""
        return {
            "reranker": self.style.name,
            "llm": dict(self.chat.identity),
            "prompt": self.prompt.hash,
        }

    def scores(self, lists: Sequence[Candidates]) -> list[ListScores]:
        """A score for every document of every list."""
        tally, before, scores = Tally(), self.chat.usage, []
        for part in _parts(lists):
            scores += self._ranked(part, self._ask, tally)
        self._tell(tally)
        costs = self.chat.usage.since(before).facts()
        self._facts = {"texts": sum(len(one.documents) for one in lists), **costs, **asdict(tally)}
        return scores

    def facts(self) -> Mapping[str, object]:
        """Costs, and how many answers could not be read."""
        return self._facts

    def estimate(self, task: Task, depth: int) -> Estimate:
        """What reranking the first `depth` documents of every query would use.

        The documents are not known before the first stage ran: expected are documents from all over
        the corpus, and the most is reached with its longest.
        """
        texts = task.corpus.texts.take(pa.array(task.corpus.last_rows)).fill_null("").to_pylist()
        depth = min(depth, len(texts))
        typical = [texts[place * len(texts) // depth] for place in range(depth)]
        largest = longest(texts, depth, words=self.style.words)
        estimate = self.chat.estimate([], length=self.style.answer_tokens)
        for query_id, query in task.queries.items():
            asked = [
                list(self.requests([Candidates(query_id, query, documents, documents)]))
                for documents in (typical, largest)
            ]
            expected = self.chat.estimate(asked[0], length=self.style.answer_tokens)
            estimate += expected.at_most(self.chat.most(asked[1]), self.chat.price)
        return replace(estimate, basis=f"{estimate.basis}; passages as they are in the corpus")

    def requests(self, lists: Sequence[Candidates]) -> Iterator[ChatRequest]:
        """What would be asked about lists if no answer changed their order; nothing is asked."""
        asked: list[str] = []

        def unread(prompts: Sequence[str]) -> list[str]:
            asked.extend(prompts)
            return [""] * len(prompts)

        for part in _parts(lists):
            self._ranked(part, unread, Tally())
            yield from map(_request, asked)
            asked.clear()

    def _ranked(
        self,
        lists: Sequence[Candidates],
        ask: Callable[[Sequence[str]], Sequence[str]],
        tally: Tally,
    ) -> list[ListScores]:
        return in_step([self.style.rank(one, self.prompt, tally) for one in lists], ask)

    def _ask(self, prompts: Sequence[str]) -> list[str]:
        start = time.perf_counter()
        answers = self.chat.complete(
            [_request(prompt) for prompt in prompts],
            tell=lambda now: self.conditions.progress(
                Progress(
                    f"reranking with {self.name}",
                    now.done,
                    now.total,
                    time.perf_counter() - start,
                )
            ),
        )
        return [answer.text for answer in answers]

    def _tell(self, tally: Tally) -> None:
        """Say what a reader of the scores must know."""
        if tally.malformed:
            self.conditions.tell(
                f"{self.name}: {tally.malformed:,} of {tally.answers:,} answers could not be read; "
                "the first stage's order was kept there."
            )
        if tally.partial:
            self.conditions.tell(
                f"{self.name}: {tally.partial:,} of {tally.answers:,} answers left passages out; "
                "those follow in the order they had."
            )


def build(name: str, style: Style, conditions: Conditions) -> LlmReranker:
    """A reranker as an entry describes it."""
    if isinstance(style, Listwise) and style.step > style.window:
        raise UsageError(
            f"{name}: step={style.step} is larger than window={style.window}, so passages between "
            "two windows would never be seen."
        )
    return LlmReranker(name, style, conditions)


def in_step(
    rankings: Sequence[Ranking], ask: Callable[[Sequence[str]], Sequence[str]]
) -> list[ListScores]:
    """Advance all rankings together, one batch of prompts of all of them at a time."""
    scores: dict[int, ListScores] = {}
    wanted: dict[int, list[str]] = {}

    def advance(place: int, answers: list[str] | None) -> None:
        wanted.pop(place, None)
        try:
            wanted[place] = rankings[place].send(answers)  # type: ignore[arg-type]
        except StopIteration as end:
            scores[place] = end.value

    for place in range(len(rankings)):
        advance(place, None)
    while wanted:
        asked = dict(wanted)
        answers = iter(ask([prompt for prompts in asked.values() for prompt in prompts]))
        for place, prompts in asked.items():
            advance(place, [next(answers) for _ in prompts])
    return [scores[place] for place in range(len(rankings))]


def read_prompt(style: str, folder: Path | None) -> Prompt:
    """The prompt of a style: the file of a folder of the user's where it is there, else ours."""
    file = f"{style}.toml"
    shipped = (files("r2med.rerank.prompts") / file).read_text(encoding="utf-8")
    shape = Shape.of(style, shipped)
    if folder and (folder / f"{style}.txt").exists():
        raise DataError(f"{folder / style}.txt is not read: prompts are TOML, write {file}.")
    if folder and (folder / file).is_file():
        return shape.parse(read_file(folder / file), str(folder / file))
    return shape.parse(shipped, f"r2med/rerank/prompts/{file}")


def _user(prompt: Prompt, one: Candidates, **values: str) -> str:
    # The line's end stays: answers that were paid for are kept under the prompt to the letter.
    return prompt.says("user", query=one.query.strip(), **values) + "\n"


def _request(prompt: str) -> ChatRequest:
    return ChatRequest((Message("user", prompt),))


def _parts(lists: Sequence[Candidates]) -> Iterator[Sequence[Candidates]]:
    for start in range(0, len(lists), _LISTS):
        yield lists[start : start + _LISTS]


def _descending(order: Sequence[int]) -> ListScores:
    """Scores of places: the first in the order scores the length of the list, the last one 1."""
    scores = np.zeros(len(order), dtype=np.float32)
    scores[list(order)] = np.arange(len(order), 0, -1)
    return scores
