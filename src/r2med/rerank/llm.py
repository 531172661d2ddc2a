"""Language models as rerankers; styles differ in how a model is asked about a list.

A style is a dataclass of settings, a prompt file, and `rank`: a generator that yields the next
requests about one list, receives the answers, and returns the scores of the list. Sending requests,
counting answers, traces and estimates are shared by all styles.
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
from r2med.expand.prompts import Prompt, load_prompt, truncate_words
from r2med.paths import cache_folder
from r2med.remote.budget import RequestEstimate
from r2med.remote.chat import Chat
from r2med.remote.completions import ChatAnswer, ChatRequest, Message, run_in_step
from r2med.remote.registry import find_llm
from r2med.rerank.llm_answers import Order, split_thought
from r2med.rerank.scores import Candidates, ListScores, RerankOutput, scores_from_order
from r2med.settings import setting
from r2med.storage import write_file
from r2med.tasks.task import Task

#: Lists that are reranked in parallel; more would take more memory.
_PARALLEL_LISTS = 256

#: Yields requests, receives their answers, returns a score for every document of a list.
Questions = Generator[list[ChatRequest], list[ChatAnswer], ListScores]
#: Returns the answers to requests, in order.
AnswerRequests = Callable[[Sequence[ChatRequest]], Sequence[ChatAnswer]]


@dataclass
class Tally:
    """Counts of answers by problem.

    An answer is counted at most once among `unread`, `refused`, `truncated` and `malformed`.
    """

    answers: int = 0
    unread: int = 0
    refused: int = 0
    truncated: int = 0
    """Answers that were cut at the token limit before anything that can be read."""
    malformed: int = 0
    """Answers that are partial, repeated or invented, as counted in the next three fields."""
    partial: int = 0
    """Answers that leave out passages."""
    repeated: int = 0
    """Answers that name a passage twice."""
    invented: int = 0
    """Answers that name a passage which was not in the prompt."""
    cut: int = 0
    """Answers whose reasoning was cut at the token limit."""
    thoughts: int = 0
    """Answers with reasoning."""
    thought_tokens: int = 0
    """Tokens of reasoning, estimated by its share of the characters of an answer."""

    @property
    def fallen_back(self) -> int:
        """Answers that could not be read at all, and had no effect."""
        return self.unread + self.refused + self.truncated

    @property
    def counts(self) -> dict[str, int]:
        """The counts that are stored with a result."""
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
    """The candidates of one query, and the counts and trace of the answers about them."""

    candidates: Candidates
    sample: int
    tally: Tally
    rows: list[dict[str, object]]
    """The rows of the trace, shared by all lists."""

    def split(self, answer: ChatAnswer) -> ChatAnswer:
        """Split an answer into thought (`reasoning`) and conclusion (`text`), and count both."""
        thought, conclusion = split_thought(answer.text)
        thought = answer.reasoning or thought
        characters = max(1, len(thought) + len(conclusion))
        self.tally.answers += 1
        if thought:
            self.tally.thoughts += 1
        self.tally.thought_tokens += round(answer.completion_tokens * len(thought) / characters)
        if answer.finish == "length" and not conclusion:
            self.tally.cut += 1
        return replace(answer, reasoning=thought, text=conclusion)

    def add(
        self,
        conclusion: ChatAnswer,
        indexes: Sequence[int],
        read: object,
        order: Order | None = None,
    ) -> None:
        """Count an answer and add it to the trace.

        Args:
            conclusion: The answer as `split` returned it.
            indexes: The candidates in the prompt, in their order.
            read: The value that was read from the answer, as JSON; None if nothing could be read.
            order: The order or scores in the answer, if it is about several candidates.
        """
        if read is None:
            self._count_unread(conclusion)
        elif order is not None:
            is_partial = len(order.indexes) < len(indexes)
            self.tally.partial += int(is_partial)
            self.tally.repeated += int(order.repeated)
            self.tally.invented += int(order.invented)
            self.tally.malformed += int(is_partial or order.repeated or order.invented)
        self.rows.append(
            {
                "query_id": self.candidates.query_id,
                "sample": self.sample,
                "documents": [self.candidates.document_ids[index] for index in indexes],
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
    """How a model is asked about a list: the settings of an entry, and how they are used."""

    name: ClassVar[str]
    """Name of the style in the identity."""
    fallback: ClassVar[str] = "the order of the first stage was kept for them"
    """The effect of an unreadable answer on its passages, as told in a warning."""
    assumed_answer: ClassVar[str] = ""
    """The answer that an estimate assumes: one that leads to the most requests."""
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
        """The expected tokens of an answer without reasoning or explanations."""

    @abstractmethod
    def rank(self, prompt: Prompt, log: Log) -> Questions:
        """Yield requests about a log's candidates, receive answers, and return the scores."""

    def request(self, prompt: Prompt, log: Log, **values: str) -> ChatRequest:
        """Build a request from the prompt and the query."""
        query = self._mask_numbers(log.candidates.query.strip())
        user = Message("user", prompt.fill("user", query=query, **values))
        system = prompt.texts.get("system")
        messages = (Message("system", system), user) if system else (user,)
        return ChatRequest(messages, sample=log.sample)

    def request_about(self, prompt: Prompt, log: Log, indexes: Sequence[int]) -> ChatRequest:
        """Build a request about some candidates, which the prompt numbers from 1."""
        scores = log.candidates.scores
        passages = [
            prompt.fill(
                "passage",
                number=str(number),
                passage=self.passage(log.candidates.documents[index]),
                score=f"{scores[index]:.2f}" if scores else "unknown",
            )
            for number, index in enumerate(indexes, start=1)
        ]
        listed = ("\n\n" if self.blank_lines else "\n").join(passages)
        return self.request(prompt, log, passages=listed, count=str(len(indexes)))

    def passage(self, text: str) -> str:
        """Return a document cut to `characters` and `words`; 0 means no limit."""
        if self.characters:
            text = re.sub(r"\n+", " ", text)[: self.characters]
        if self.words:
            text = truncate_words(text, self.words)
        return self._mask_numbers(text)

    def _mask_numbers(self, text: str) -> str:
        """Write [1] as (1), so that it is not confused with the number of a passage."""
        return re.sub(r"\[(\d+)\]", r"(\1)", text) if self.mask_numbers else text


class LlmReranker:
    """A reranker that asks a language model about every list, as its style prescribes."""

    def __init__(self, name: str, style: Style, resources: Resources) -> None:
        if not style.llm:
            raise UsageError(
                f"{name}: which model? Write it after a colon, as in {style.prompt}:gpt4."
            )
        self.name = name
        self.style = style
        self.resources = resources
        self.prompt = read_prompt(style.prompt, resources.options.prompts)

    @cached_property
    def chat(self) -> Chat:
        """The chat client of the model, with the settings of the style.

        The temperature `auto` is 0 if the model has a temperature.
        """
        style, options = self.style, {}
        temperature = style.temperature
        model = find_llm(style.llm, allow_unknown=True)
        if temperature == "auto" and model.temperature is not None:
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
        """The identity of model and prompt; settings of the style are identified separately."""
        return {
            "reranker": self.style.name,
            "algorithms": versions("llm-reranking"),
            "llm": dict(self.chat.identity),
            "stripping": self.chat.llm.stripping,
            "prompt": self.prompt.hash,
        }

    def rerank(self, lists: Sequence[Candidates]) -> RerankOutput:
        """Ask the model about every list; return the scores of all documents."""
        tally, scores = Tally(), list[ListScores]()
        rows: list[dict[str, object]] = []
        answers: list[ChatAnswer] = []
        complete = partial(self.chat.complete, show=self.resources.progress, received=answers)
        for start in range(0, len(lists), _PARALLEL_LISTS):
            chunk = lists[start : start + _PARALLEL_LISTS]
            scores += self._rank_lists(chunk, complete, tally, rows)
        if tally.fallen_back:
            self.resources.warn(
                f"{self.name}: {tally.fallen_back:,} of {tally.answers:,} answers could not be "
                f"read; {self.style.fallback}."
            )
        if tally.partial:
            self.resources.warn(
                f"{self.name}: {tally.partial:,} of {tally.answers:,} answers left out passages; "
                "these follow in their previous order."
            )
        facts = {
            "texts": sum(len(candidates.documents) for candidates in lists),
            **self.chat.usage(answers),
            **asdict(tally),
            "answer_counts": tally.counts,
            "trace": self._write_trace(rows),
        }
        return RerankOutput(scores, facts, Usage.from_facts(facts))

    def estimate(self, task: Task, depth: int) -> RequestEstimate:
        """Estimate tokens and money for reranking the first `depth` documents of every query.

        The candidates are not known before the first stage has run, so documents spread evenly over
        the corpus are used instead.
        """
        texts = task.corpus.document_texts()
        depth = min(depth, len(texts))
        sample = [texts[index * len(texts) // depth] for index in range(depth)]
        lists = (
            Candidates(query_id, query, sample, sample) for query_id, query in task.queries.items()
        )
        requests = (request for candidates in lists for request in self.requests([candidates]))
        estimate = self.chat.estimate(requests, length=self.style.answer_tokens)
        return replace(estimate, basis=f"{estimate.basis}; passages as they are in the corpus")

    def requests(self, lists: Sequence[Candidates]) -> list[ChatRequest]:
        """Return the requests that reranking would send; none is sent."""
        answer = ChatAnswer(self.style.assumed_answer, "stop", 0, 0, 0.0, cached=False)
        collected: list[ChatRequest] = []

        def collect(requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
            collected.extend(requests)
            return [answer] * len(requests)

        self._rank_lists(lists, collect, Tally(), [])
        return collected

    def _rank_lists(
        self,
        lists: Sequence[Candidates],
        answer_requests: AnswerRequests,
        tally: Tally,
        rows: list[dict[str, object]],
    ) -> list[ListScores]:
        """Score every list once per sample; the scores of several samples are averaged."""
        count = self.style.samples
        logs = [
            Log(candidates, sample, tally, rows) for candidates in lists for sample in range(count)
        ]
        scores = run_in_step([self.style.rank(self.prompt, log) for log in logs], answer_requests)
        if count == 1:
            return scores
        groups = (scores[start : start + count] for start in range(0, len(scores), count))
        return [scores_by_value(np.mean(group, axis=0)) for group in groups]

    def _write_trace(self, rows: Sequence[Mapping[str, object]]) -> str:
        """Write all answers to a trace file; return its path relative to the home folder."""
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        data = content.encode("utf-8", "replace")
        slug = re.sub(r"[^a-z0-9.]+", "-", self.name.lower()).strip("-")[:40]
        digest = hashlib.sha256(data).hexdigest()[:16]
        path = cache_folder("rerank-traces") / f"{slug}-{digest}.jsonl"
        write_file(path, data)
        return f"{path.parent.name}/{path.name}"


def scores_by_value(values: Sequence[float] | ListScores) -> ListScores:
    """Return scores that order a list by descending value; ties keep the first stage's order."""
    return scores_from_order(sorted(range(len(values)), key=lambda index: -values[index]))


def read_prompt(name: str, folder: Path | None) -> Prompt:
    """Read a prompt by name, from the user's folder if it has the file, else from the package."""
    file_name = f"{name}.toml"
    shipped = {path.name: path for path in (files("r2med.rerank") / "prompts").iterdir()}
    if file_name not in shipped:
        known_names = [shipped_name.removesuffix(".toml") for shipped_name in shipped]
        raise UsageError(f"prompt {name!r} is not known. {nearest(name, known_names)}")
    return load_prompt(name, shipped[file_name], folder / file_name if folder else None)
