"""Expanders: generate texts for the queries of a task, or read them from a file.

A pipeline calls, in this order:

    expander = Expander(method, resources, make_finder)
    generations = expander.bind(task)        chooses a file or the model
    generations.identity                     part of the result's key; calls no model
    expansion = generations.expand()         reads the file, or calls the model
    runs = [search_forms(searcher, task.queries, forms, depth=d) for forms in expansion.variants]

With `[combine=fuse]` there are several variants, whose runs are fused by reciprocal rank.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

from r2med.algorithms import TASK_SPECIFIC
from r2med.errors import UsageError
from r2med.execution.resources import Resources
from r2med.expand.agents import AgentLoop, RetrievedPassage, Trace
from r2med.expand.answers import (
    ANSWER_ALONE,
    ExpandedQuery,
    Expansion,
    Rule,
    classify_answer,
    extract_answer,
)
from r2med.expand.generations import (
    StoredGenerations,
    find_generations,
    generations_path,
    write_generations,
)
from r2med.expand.prompts import (
    Prompt,
    PromptType,
    choose_prompt_type,
    describe_query_type,
    read_prompt,
)
from r2med.paths import cache_folder, slug
from r2med.remote.budget import RequestEstimate
from r2med.remote.chat import Chat
from r2med.remote.completions import ChatAnswer, ChatRequest, Message
from r2med.remote.registry import LLM, Stripping, find_llm
from r2med.retrieve.interface import Retriever, Searcher
from r2med.settings import setting, settings_identity
from r2med.tasks.task import Queries, Task

#: Settings that only methods which read passages use, and settings that only agents use.
_PASSAGE_SETTINGS = ("search", "passages", "words")
_AGENT_SETTINGS = ("turns", "tokens")


@dataclass(frozen=True)
class Method:
    """The settings of an entry of methods.toml; that file documents each field."""

    prompts: str
    style: Literal["direct", "search-o1", "search-r1"]
    lexical: str
    dense: tuple[str, ...]
    strip: Stripping
    combine: Literal["average", "fuse"]
    kind: PromptType | Literal["auto"]
    search: str
    llm: str = setting(identity="content")
    generations: str = setting(identity="content")
    n: int = setting(least=1)
    max_tokens: int = setting(least=0)
    temperature: float | Literal["auto"] = setting(least=0)
    seed: int | Literal["auto"] = setting()
    server: Literal["url", "any"] = setting()
    passages: int = setting(least=0)
    words: int = setting(least=0)
    turns: int = setting(least=0)
    tokens: int = setting(least=0)

    @cached_property
    def model(self) -> LLM:
        """The registry entry of the model; default settings if its name is not registered."""
        return find_llm(self.llm, allow_unknown=True)

    @cached_property
    def rule(self) -> Rule:
        """The templates that combine query and generation; they differ if the model reasons."""
        return ANSWER_ALONE if self.model.reasoning else Rule(self.lexical, self.dense)

    @property
    def is_agent(self) -> bool:
        """Whether the model may search while it reasons."""
        return self.style != "direct"

    @property
    def llm_options(self) -> dict[str, str]:
        """Settings of the model that the method overrides."""
        options: dict[str, str] = {}
        if self.server != "url":
            options["server"] = self.server
        if self.temperature != "auto":
            options["temperature"] = f"{self.temperature:g}"
        if self.seed != "auto":
            options["seed"] = str(self.seed)
        return options

    @property
    def fuses_runs(self) -> bool:
        """Whether each generation is searched for separately and the runs are fused."""
        return self.combine == "fuse" and self.n > 1

    @property
    def identity(self) -> Mapping[str, object]:
        """The settings that extract and combine answers; some are those of the model."""
        return {
            "lexical": self.rule.lexical,
            "dense": list(self.rule.dense),
            "strip": [self.model.stripping, self.strip],
        }

    def extract_answer(self, raw: str) -> str:
        """Return the answer in a text, extracted by the marker of the model, then of the method."""
        without_reasoning = extract_answer(raw, self.model.stripping)
        return extract_answer(without_reasoning, self.strip)

    def expansion(
        self, queries: tuple[ExpandedQuery, ...], work: Mapping[str, object]
    ) -> Expansion:
        """Return the expansion of queries, with the rule by which this method combines them."""
        return Expansion(queries, self.rule, self.fuses_runs, work)

    def check(self) -> None:
        """Raise UsageError if the model is missing, or a setting is missing or has no effect."""
        if not self.llm:
            raise UsageError(
                f"{self.prompts}: which model? Write it after a colon, as in "
                f"'{self.prompts}:qwen-7b | bm25'; docs/llms.md lists the names."
            )
        user_prompt = read_prompt(self.prompts, "question").texts["user"]
        reads_passages = self.is_agent or "{passages}" in user_prompt
        if not self.is_agent:
            self._check_unset(_AGENT_SETTINGS, "is not an agent and sends one request per query")
        if not reads_passages:
            self._check_unset(_PASSAGE_SETTINGS, "does not search")
        elif not (self.search and self.passages and self.words):
            example = "[search=bm25,passages=3,words=200]"
            raise UsageError(
                f"{self.prompts}: it needs a retriever and passages to read, as in {example}."
            )
        Rule(self.lexical, self.dense)  # raises UsageError for a template without a placeholder

    def _check_unset(self, names: Sequence[str], reason: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value:
                raise UsageError(
                    f"{self.prompts}[{name}={value}] has no effect: {self.prompts} {reason}. "
                    f"Leave {name} out."
                )


@dataclass(frozen=True)
class Finder:
    """Finds passages in the corpus of one task; the first search indexes the corpus."""

    task: Task
    retriever: Retriever
    identity: Mapping[str, object]
    """Everything that can change the passages that are found."""

    def __call__(self, texts: Sequence[str], depth: int) -> list[list[RetrievedPassage]]:
        """Return the best passages for each text, without documents of score 0."""
        query_ids = [f"search-{index}" for index in range(len(texts))]
        run = self._searcher.search(Queries.of(query_ids, texts), depth=depth)
        return [
            [
                RetrievedPassage(document_id, self.task.document(document_id))
                for document_id, score in run.ranking(query_id)
                if score
            ]
            for query_id in query_ids
        ]

    @cached_property
    def _searcher(self) -> Searcher:
        return self.retriever.prepare(self.task)


#: From a task and the spec of a retriever (such as `bm25`) to a finder for the task's corpus.
MakeFinder = Callable[[Task, str], Finder]


@dataclass(frozen=True)
class Expander:
    """A method and a model (`METHOD:LLM`), not yet bound to a task."""

    method: Method
    resources: Resources
    make_finder: MakeFinder

    def __post_init__(self) -> None:
        self.method.check()

    def bind(self, task: Task, *, keep: bool = True) -> Generations:
        """Return the generations for a task: of the file that the settings select, or live."""
        stored = find_generations(task, self.method)
        return stored or replace(self.bind_live(task), keep=keep)

    def bind_live(self, task: Task) -> LiveGenerations:
        """Return generations that call the model, even if there is a file of generations."""
        finder = self.make_finder(task, self.method.search) if self.method.search else None
        return LiveGenerations(task, self.method, finder, self.resources)


@dataclass(frozen=True)
class LiveGenerations:
    """The generations of a model for a task; answers of the model are cached one by one."""

    task: Task
    method: Method
    finder: Finder | None
    resources: Resources
    keep: bool = True
    """Whether finished generations are also written to a file, for people to read."""
    notices: tuple[str, ...] = ()

    @cached_property
    def chat(self) -> Chat:
        """The model, with the options of the method."""
        return self.resources.remote.chat(self.method.llm, self.method.llm_options)

    @cached_property
    def prompt(self) -> Prompt:
        """The method's prompt for this type of task."""
        prompt_type = self.method.kind
        if prompt_type == "auto":
            prompt_type = choose_prompt_type(self.task.entry)
        return read_prompt(self.method.prompts, prompt_type, self.resources.options.prompts)

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """Everything that can change the expansion: model, prompt, search and combination."""
        return {
            "llm": dict(self.chat.identity),
            "search": dict(self.finder.identity) if self.finder else None,
            TASK_SPECIFIC: {
                "prompt": self.prompt.hash,
                "asked_about": describe_query_type(self.task.entry),
            },
            **self.method.identity,
        }

    @cached_property
    def opening_prompts(self) -> tuple[str, ...]:
        """The first prompt for every query; passages for the prompts are searched for now."""
        method, query_type = self.method, describe_query_type(self.task.entry)
        queries = self.task.queries.texts.to_pylist()
        passage_lists = [""] * len(queries)
        if self.finder and not method.is_agent:
            for row, passages in enumerate(self.finder(queries, method.passages)):
                texts = [passage.text for passage in passages]
                listed = self.prompt.list_passages(texts, words=method.words)
                passage_lists[row] = listed or "(none was found)"
        return tuple(
            self.prompt.opening_request(
                query_type=query_type, query=query, passages=listed, turns=str(method.turns)
            )
            for query, listed in zip(queries, passage_lists, strict=True)
        )

    @cached_property
    def loop(self) -> AgentLoop | None:
        """The loop that runs agents; None if the method sends one request per query."""
        if self.finder is None or not self.method.is_agent:
            return None
        return AgentLoop(self.method, self.prompt, self.finder)

    @property
    def requests(self) -> tuple[ChatRequest, ...]:
        """The first requests: those of all queries for sample 0, then for sample 1, and so on."""
        return tuple(
            ChatRequest(
                messages=(Message("user", text),),
                sample=sample,
                stop=self.loop.tags.stop if self.loop else (),
                max_tokens=self.method.max_tokens or None,
            )
            for sample in range(self.method.n)
            for text in self.opening_prompts
        )

    @property
    def expected_tokens(self) -> int:
        """The expected number of tokens of a generation."""
        expected = self.chat.llm.expected_tokens
        return min(expected, self.method.max_tokens or expected)

    def estimate(self) -> RequestEstimate:
        """Estimate tokens and money for all requests; calls no model."""
        estimate = self.chat.estimate(self.requests)
        if self.loop is None:
            return estimate
        more = f"first turns only, of up to {self.method.turns} searches per agent"
        return replace(estimate, basis=f"{estimate.basis}; {more}")

    def expand(self) -> Expansion:
        """Call the model for all requests without a cached answer, and combine the answers."""
        answers: list[ChatAnswer] = []
        complete = partial(self.chat.complete, show=self.resources.progress, received=answers)
        traces: list[Trace] = []
        if self.loop is None:
            samples = [
                classify_answer(answer.text, self.method.extract_answer(answer.text), answer.finish)
                for answer in complete(self.requests)
            ]
        else:
            outcomes = self.loop.run(self.requests, complete)
            samples = [sample for sample, _ in outcomes]
            traces = [trace for _, trace in outcomes]
        count = len(self.opening_prompts)
        queries = tuple(
            # Samples are in the order of `requests`: every query once, then every query again.
            ExpandedQuery(query_id, query, tuple(samples[row::count]), tuple(traces[row::count]))
            for row, (query_id, query) in enumerate(self.task.queries.items())
        )
        work = {"generations_from": "live", **self.chat.usage(answers)}
        if self.keep:
            path = self._storage_path()
            write_generations(queries, path)
            work["generations_kept"] = str(path)
        return self.method.expansion(queries, work)

    def _storage_path(self) -> Path:
        identity = [self.task.hash, settings_identity(self.method), self.identity]
        content = json.dumps(identity, sort_keys=True, default=str)
        key = hashlib.sha256(content.encode()).hexdigest()[:12]
        folder = cache_folder("expansions") / slug(self.task.name) / key
        return generations_path(folder, self.method.prompts, self.method.llm)


Generations = StoredGenerations | LiveGenerations
