"""Language models as rerankers: each style asks about a list in its own way, many lists at once.

A style is its settings, a prompt file, and `rank`: a generator that yields the requests it wants
answered next for one list, receives the answers, and returns the list's scores. Whatever asks,
counts, traces and estimates is shared, so a new style is a dataclass and a file of words.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from importlib.resources import files
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from r2med.algorithms import versions
from r2med.errors import UsageError, nearest
from r2med.execution.resources import Resources
from r2med.execution.usage import Usage
from r2med.expand.answers import is_refusal
from r2med.expand.prompts import Prompt, prompt_of, truncate_words
from r2med.paths import cache_folder
from r2med.remote.budget import Estimate
from r2med.remote.chat import Chat
from r2med.remote.completions import ChatAnswer, ChatRequest, Message, in_step
from r2med.remote.registry import find_llm
from r2med.rerank.llm_answers import Order, split_thought
from r2med.rerank.scores import Candidates, ListScores, RerankOutput, in_order
from r2med.settings import setting
from r2med.storage import write_file
from r2med.tasks.task import Task

#: Lists that are asked about side by side, so that memory stays small.
_LISTS = 256

#: Yields requests, receives their answers, returns a score for every document of a list.
Questioning = Generator[list[ChatRequest], list[ChatAnswer], ListScores]
Ask = Callable[[Sequence[ChatRequest]], Sequence[ChatAnswer]]


@dataclass
class Tally:
    """How the answers were; each is counted under one of the first four problems at most."""

    answers: int = 0
    unread: int = 0
    refused: int = 0
    truncated: int = 0
    """Cut before anything that could be read."""
    malformed: int = 0
    """Read in part, for any of the next three reasons."""
    partial: int = 0
    """Answers that leave passages out, ..."""
    repeated: int = 0
    """... name one twice, ..."""
    invented: int = 0
    """... or name one that was not shown."""
    cut: int = 0
    """Thoughts that the token limit cut."""
    thoughts: int = 0
    thought_tokens: int = 0
    """About: the answer's new tokens by the thought's share of its characters."""

    @property
    def fallen_back(self) -> int:
        """Answers of which nothing could be read, so that they had no effect."""
        return self.unread + self.refused + self.truncated

    @property
    def counts(self) -> dict[str, int]:
        """The counts that a stored result shows beside its scores."""
        return {
            "total": self.answers,
            "unread": self.unread,
            "refused": self.refused,
            "truncated": self.truncated,
            "malformed": self.malformed,
            "fallen_back": self.fallen_back,
        }


@dataclass
class Log:
    """What became of the answers about one list."""

    one: Candidates
    sample: int
    tally: Tally
    rows: list[dict[str, object]]

    def take(self, answer: ChatAnswer) -> ChatAnswer:
        """Part an answer into thought (`reasoning`) and conclusion (`text`), and count both."""
        thought, conclusion = split_thought(answer.text)
        thought = answer.reasoning or thought
        whole = len(thought) + len(conclusion)
        self.tally.answers += 1
        self.tally.thoughts += bool(thought)
        self.tally.thought_tokens += round(answer.completion_tokens * len(thought) / max(1, whole))
        self.tally.cut += answer.finish == "length" and not conclusion
        return replace(answer, reasoning=thought, text=conclusion)

    def judge(
        self, conclusion: ChatAnswer, shown: Sequence[int], read: object, order: Order | None = None
    ) -> None:
        """Count what was read of an answer without its thought, and add it to the trace."""
        if read is None:
            self._count_unread(conclusion)
        elif order is not None:
            partial = len(order.places) < len(shown)
            self.tally.partial += partial
            self.tally.repeated += order.repeated
            self.tally.invented += order.invented
            self.tally.malformed += partial or order.repeated or order.invented
        self.rows.append(
            {
                "query_id": self.one.query_id,
                "sample": self.sample,
                "documents": [self.one.document_ids[index] for index in shown],
                "thought": conclusion.reasoning,
                "answer": conclusion.text,
                "finish": conclusion.finish,
                "read": read,
            }
        )

    def _count_unread(self, conclusion: ChatAnswer) -> None:
        if conclusion.finish == "refusal" or is_refusal(conclusion.text):
            self.tally.refused += 1
        elif conclusion.finish == "length":
            self.tally.truncated += 1
        else:
            self.tally.unread += 1


@dataclass(frozen=True, kw_only=True)
class Style(ABC):
    """How lists are asked about: the settings of an entry, and what they mean."""

    otherwise: ClassVar[str] = "the first stage's order was kept there"
    """What becomes of passages whose answer cannot be read."""
    supposed: ClassVar[str] = ""
    """The answer that an estimate supposes: one that asks for the most."""
    llm: str = setting(identity="content")
    prompt: str
    words: int = setting(least=0)
    characters: int = setting(least=0)
    blank_lines: bool
    mask_numbers: bool
    temperature: float | Literal["auto"] = setting(least=0)
    max_tokens: int = setting(least=0)
    server: Literal["url", "any"]
    samples: int = setting(least=1)

    @property
    @abstractmethod
    def answer_tokens(self) -> int:
        """About how long an answer is that says what was asked for and no more."""

    @abstractmethod
    def rank(self, prompt: Prompt, log: Log) -> Questioning:
        """Score the list of a log."""

    def request(self, prompt: Prompt, log: Log, **values: str) -> ChatRequest:
        """The prompt about a list, as a conversation."""
        query = self._mask_numbers(log.one.query.strip())
        user = Message("user", prompt.says("user", query=query, **values))
        system = prompt.texts.get("system")
        messages = (Message("system", system), user) if system else (user,)
        return ChatRequest(messages, sample=log.sample)

    def about(self, prompt: Prompt, log: Log, indexes: Sequence[int]) -> ChatRequest:
        """A request about some documents of a list, numbered from 1."""
        scores = log.one.scores
        shown = [
            prompt.says(
                "passage",
                number=str(number),
                passage=self.passage(log.one.documents[index]),
                score=f"{scores[index]:.2f}" if scores else "unknown",
            )
            for number, index in enumerate(indexes, start=1)
        ]
        passages = ("\n\n" if self.blank_lines else "\n").join(shown)
        return self.request(prompt, log, passages=passages, count=str(len(indexes)))

    def passage(self, text: str) -> str:
        """A document cut to so many characters or words, as far as either is set."""
        if self.characters:
            text = re.sub(r"\n+", " ", text)[: self.characters]
        return self._mask_numbers(truncate_words(text, self.words) if self.words else text)

    def _mask_numbers(self, text: str) -> str:
        """The text with [1] as (1), so that it is not taken for the number of a passage."""
        return re.sub(r"\[(\d+)\]", r"(\1)", text) if self.mask_numbers else text


class LlmReranker:
    """A style, a model and a prompt."""

    def __init__(self, name: str, style: Style, resources: Resources) -> None:
        if not style.llm:
            raise UsageError(f"{name}: which model? Name it as in {style.prompt}:gpt4.")
        self.name = name
        self.style = style
        self.resources = resources
        self.prompt = read_prompt(style.prompt, resources.options.prompts)

    @cached_property
    def chat(self) -> Chat:
        """The model, under the conditions of this run; at temperature 0 where it takes one."""
        style, options = self.style, {}
        temperature = style.temperature
        if temperature == "auto" and find_llm(style.llm, anything=True).temperature is not None:
            temperature = 0
        if temperature != "auto":
            options["temperature"] = f"{temperature:g}"
        if style.server != "url":
            options["server"] = style.server
        if style.max_tokens:
            options["max_tokens"] = str(style.max_tokens)
        return self.resources.remote.chat(style.llm, options)

    @property
    def identity(self) -> Mapping[str, object]:
        """The model and the prompt; the settings stand beside it."""
        return {
            "reranker": type(self.style).__name__.lower(),
            "algorithms": versions("llm-reranking"),
            "llm": dict(self.chat.identity),
            "prompt": self.prompt.hash,
        }

    def rerank(self, lists: Sequence[Candidates]) -> RerankOutput:
        """Ask the model about every list."""
        tally, scores = Tally(), list[ListScores]()
        rows: list[dict[str, object]] = []
        answers: list[ChatAnswer] = []
        ask = partial(self.chat.complete, show=self.resources.progress, taken=answers)
        for start in range(0, len(lists), _LISTS):
            scores += self._rank_lists(lists[start : start + _LISTS], ask, tally, rows)
        if tally.fallen_back:
            self.resources.warn(
                f"{self.name}: {tally.fallen_back:,} of {tally.answers:,} answers could not be "
                f"read; {self.style.otherwise}."
            )
        if tally.partial:
            self.resources.warn(
                f"{self.name}: {tally.partial:,} of {tally.answers:,} answers left passages out; "
                "those follow in the order they had."
            )
        facts = {
            "texts": sum(len(one.documents) for one in lists),
            **self.chat.usage(answers),
            **asdict(tally),
            "answer_counts": tally.counts,
            "trace": self._write_trace(rows),
        }
        return RerankOutput(scores, facts, Usage.from_facts(facts))

    def estimate(self, task: Task, depth: int) -> Estimate:
        """What reranking the first `depth` documents of every query would use.

        The documents are not known before the first stage ran: expected are documents from all over
        the corpus.
        """
        texts = task.corpus.document_texts()
        depth = min(depth, len(texts))
        shown = [texts[index * len(texts) // depth] for index in range(depth)]
        lists = (Candidates(*query, shown, shown) for query in task.queries.items())
        asked = (request for one in lists for request in self.requests([one]))
        estimate = self.chat.estimate(asked, length=self.style.answer_tokens)
        return replace(estimate, basis=f"{estimate.basis}; passages as they are in the corpus")

    def requests(self, lists: Sequence[Candidates]) -> list[ChatRequest]:
        """What would be asked about lists; nothing is asked."""
        supposed = ChatAnswer(self.style.supposed, "stop", 0, 0, 0.0, cached=False)
        asked: list[ChatRequest] = []

        def unread(requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
            asked.extend(requests)
            return [supposed] * len(requests)

        self._rank_lists(lists, unread, Tally(), [])
        return asked

    def _rank_lists(
        self, lists: Sequence[Candidates], ask: Ask, tally: Tally, rows: list[dict[str, object]]
    ) -> list[ListScores]:
        """Every list ranked once per sample; of several samples the mean place decides."""
        count = self.style.samples
        logs = [Log(one, sample, tally, rows) for one in lists for sample in range(count)]
        scores = in_step([self.style.rank(self.prompt, log) for log in logs], ask)
        if count == 1:
            return scores
        groups = (scores[start : start + count] for start in range(0, len(scores), count))
        return [by_value(np.mean(group, axis=0)) for group in groups]

    def _write_trace(self, rows: Sequence[Mapping[str, object]]) -> str:
        """Write what the model thought and answered about every list; the path below the home."""
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        data = content.encode("utf-8", "replace")
        slug = re.sub(r"[^a-z0-9.]+", "-", self.name.lower()).strip("-")[:40]
        index = (
            cache_folder("rerank-traces") / f"{slug}-{hashlib.sha256(data).hexdigest()[:16]}.jsonl"
        )
        write_file(index, data)
        return f"{index.parent.name}/{index.name}"


def by_value(values: Sequence[float] | ListScores) -> ListScores:
    """Scores by falling value; equal values keep the order of the first stage."""
    return in_order(sorted(range(len(values)), key=lambda index: -values[index]))


def read_prompt(name: str, folder: Path | None) -> Prompt:
    """A prompt by name: the file of a folder of the user's where it is there, else ours."""
    file = f"{name}.toml"
    ours = {path.name: path for path in (files("r2med.rerank") / "prompts").iterdir()}
    if file not in ours:
        known_names = [file_name.removesuffix(".toml") for file_name in ours]
        raise UsageError(f"prompt {name!r} is not known. {nearest(name, known_names)}")
    return prompt_of(name, ours[file], folder / file if folder else None)
