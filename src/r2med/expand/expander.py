"""Generation methods at work: texts for a task's queries, from a file or from the model itself.

A pipeline calls, in this order:

    expander = Expander(method, resources, finders)
    bound = expander.on(task)                decides where the generations come from
    bound.identity                           part of the result's key; no model is asked
    expansion = bound.expand()               generates what is not on disk yet
    runs = [search_forms(searcher, task.queries, forms, depth=d) for forms in expansion.variants]

More than one variant (`[combine=fuse]`) means: one run each, fused by reciprocal rank.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

from r2med.algorithms import TASK_SPECIFIC
from r2med.errors import UsageError
from r2med.execution.resources import Resources
from r2med.expand.agents import Loop, Passage, Trace
from r2med.expand.answers import ANSWER_ALONE, Expanded, Expansion, Rule, judge, strip
from r2med.expand.generations import FromFile, file_in, find_file, write_generations
from r2med.expand.prompts import Prompt, TaskKind, query_noun, read_prompt, task_kind
from r2med.paths import cache_folder, slug
from r2med.remote.budget import Estimate
from r2med.remote.chat import Chat
from r2med.remote.completions import ChatAnswer, ChatRequest, Message
from r2med.remote.registry import LLM, Stripping, find_llm
from r2med.retrieve.interface import Retriever, Searcher
from r2med.settings import setting, settings_identity
from r2med.tasks.task import Queries, Task

_OF_READERS = ("search", "passages", "words")
_OF_AGENTS = ("turns", "tokens")


@dataclass(frozen=True)
class Method:
    """All that an entry of methods.toml may say; that file documents each field."""

    prompts: str
    style: Literal["direct", "search-o1", "search-r1"]
    lexical: str
    dense: tuple[str, ...]
    strip: Stripping
    combine: Literal["average", "fuse"]
    kind: TaskKind | Literal["auto"]
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
        """The model's entry; of an unknown name, what is assumed of any model."""
        return find_llm(self.llm, anything=True)

    @cached_property
    def rule(self) -> Rule:
        """How query and generation are combined, which depends on whether the model reasons."""
        return ANSWER_ALONE if self.model.reasoning else Rule(self.lexical, self.dense)

    @property
    def agent(self) -> bool:
        """Whether the model may search while it reasons."""
        return self.style != "direct"

    @property
    def llm_options(self) -> dict[str, str]:
        """What the method changes in the model's entry."""
        options: dict[str, str] = {}
        if self.server != "url":
            options["server"] = self.server
        if self.temperature != "auto":
            options["temperature"] = f"{self.temperature:g}"
        if self.seed != "auto":
            options["seed"] = str(self.seed)
        return options

    @property
    def fuses(self) -> bool:
        """Whether each generation is searched with by itself and the runs are fused."""
        return self.combine == "fuse" and self.n > 1

    @property
    def identity(self) -> Mapping[str, object]:
        """What the model's entry decides: how texts are stripped and combined."""
        return {
            "lexical": self.rule.lexical,
            "dense": list(self.rule.dense),
            "strip": [self.model.stripping, self.strip],
        }

    def answer_in(self, raw: str) -> str:
        """The answer in what a model wrote: by the model's own mark, then by the method's."""
        return strip(strip(raw, self.model.stripping), self.strip)

    def expansion(self, queries: tuple[Expanded, ...], work: Mapping[str, object]) -> Expansion:
        """Queries with their generations, to be combined and searched by this method's rule."""
        return Expansion(queries, self.rule, self.fuses, work)

    def check(self) -> None:
        """Refuse a method without a model, and options that contradict it or have no effect."""
        if not self.llm:
            raise UsageError(
                f"{self.prompts}: which model? Write it after a colon, as in "
                f"'{self.prompts}:qwen-7b | bm25'; docs/llms.md lists the names."
            )
        reads = self.agent or "{passages}" in read_prompt(self.prompts, "question").texts["user"]
        unused = (*(() if self.agent else _OF_AGENTS), *(() if reads else _OF_READERS))
        for name in unused:
            if value := getattr(self, name):
                why = "does not search" if name in _OF_READERS else "is no agent and asks once"
                raise UsageError(
                    f"{self.prompts}[{name}={value}] has no effect: {self.prompts} {why}. "
                    f"Leave {name} out."
                )
        if reads and not (self.search and self.passages and self.words):
            example = "[search=bm25,passages=3,words=200]"
            raise UsageError(
                f"{self.prompts}: it needs a retriever and passages to read, as in {example}."
            )
        Rule(self.lexical, self.dense)


@dataclass(frozen=True)
class Finder:
    """A retriever over one task's corpus, which is prepared when first searched."""

    task: Task
    retriever: Retriever
    identity: Mapping[str, object]
    """What decides its rankings: the retriever's settings, and what it read."""

    def __call__(self, texts: Sequence[str], depth: int) -> list[list[Passage]]:
        """The best passages for each text; a document that scores nothing was not found."""
        ids = [f"search-{place}" for place in range(len(texts))]
        run = self._searcher.search(Queries.of(ids, texts), depth=depth)
        lists = (run.ranking(query) for query in ids)
        document = self.task.document
        return [[Passage(name, document(name)) for name, score in hits if score] for hits in lists]

    @cached_property
    def _searcher(self) -> Searcher:
        return self.retriever.prepare(self.task)


#: From a task and the text of a retriever (such as `bm25`) to a finder in its corpus.
Finders = Callable[[Task, str], Finder]


@dataclass(frozen=True)
class Expander:
    """`METHOD:LLM`, not yet bound to a task."""

    method: Method
    resources: Resources
    finders: Finders

    def __post_init__(self) -> None:
        self.method.check()

    def on(self, task: Task, *, keep: bool = True) -> Bound:
        """Take the file that the method's `generations` names, or the model."""
        return find_file(task, self.method) or replace(self.live(task), keep=keep)

    def live(self, task: Task) -> FromModel:
        """Bind to the model, whatever files there are."""
        finder = self.finders(task, self.method.search) if self.method.search else None
        return FromModel(task, self.method, finder, self.resources)


@dataclass(frozen=True)
class FromModel:
    """Generations that a model makes now, or made before and are kept call by call."""

    task: Task
    method: Method
    finder: Finder | None
    resources: Resources
    keep: bool = True
    """Whether finished generations are also written to the shelf, for reading."""
    notices: tuple[str, ...] = ()

    @cached_property
    def chat(self) -> Chat:
        """The model, with the options of the method."""
        return self.resources.remote.chat(self.method.llm, self.method.llm_options)

    @cached_property
    def prompt(self) -> Prompt:
        """The words of the method for this kind of task."""
        kind = self.method.kind
        kind = task_kind(self.task.entry) if kind == "auto" else kind
        return read_prompt(self.method.prompts, kind, self.resources.options.prompts)

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """Model, words, what is searched, and how texts are stripped and combined."""
        return {
            "llm": dict(self.chat.identity),
            "search": dict(self.finder.identity) if self.finder else None,
            TASK_SPECIFIC: {
                "prompt": self.prompt.hash,
                "asked_about": query_noun(self.task.entry),
            },
            **self.method.identity,
        }

    @cached_property
    def openings(self) -> tuple[str, ...]:
        """The opening request of every query; a method that reads before it writes searches now."""
        method, kind = self.method, query_noun(self.task.entry)
        queries = self.task.queries.texts.to_pylist()
        shown = [""] * len(queries)
        if self.finder and not method.agent:
            for row, passages in enumerate(self.finder(queries, method.passages)):
                listed = self.prompt.passages([p.text for p in passages], words=method.words)
                shown[row] = listed or "(none was found)"
        return tuple(
            self.prompt.first(kind=kind, query=query, passages=listed, turns=str(method.turns))
            for query, listed in zip(queries, shown, strict=True)
        )

    @cached_property
    def loop(self) -> Loop | None:
        """What an agent goes on in after its opening request; None where a model is asked once."""
        if self.finder is None or not self.method.agent:
            return None
        return Loop(self.method, self.prompt, self.finder)

    @property
    def requests(self) -> tuple[ChatRequest, ...]:
        """The first request for every query and sample, sample by sample."""
        return tuple(
            ChatRequest(
                messages=(Message("user", text),),
                sample=sample,
                stop=self.loop.tags.stop if self.loop else (),
                max_tokens=self.method.max_tokens or None,
            )
            for sample in range(self.method.n)
            for text in self.openings
        )

    @property
    def expected_tokens(self) -> int:
        """About how long a generation will be."""
        expected = self.chat.llm.expected_tokens
        return min(expected, self.method.max_tokens or expected)

    def estimate(self) -> Estimate:
        """What asking would use, before anything is asked."""
        estimate = self.chat.estimate(self.requests)
        if self.loop is None:
            return estimate
        more = f"first turns only, of up to {self.method.turns} searches per agent"
        return replace(estimate, basis=f"{estimate.basis}; {more}")

    def expand(self) -> Expansion:
        """Ask for what is not on disk yet; the texts and traces are also kept for reading."""
        answer_in, traces, answers = self.method.answer_in, list[Trace](), list[ChatAnswer]()
        ask = partial(self.chat.complete, show=self.resources.progress, taken=answers)
        if self.loop is None:
            samples = [judge(a.text, answer_in(a.text), a.finish) for a in ask(self.requests)]
        else:
            outcomes = self.loop.run(self.requests, ask)
            samples, traces = [each[0] for each in outcomes], [each[1] for each in outcomes]
        count = len(self.openings)
        queries = tuple(
            Expanded(query_id, query, tuple(samples[place::count]), tuple(traces[place::count]))
            for place, (query_id, query) in enumerate(self.task.queries.items())
        )
        work = {"generations_from": "live", **self.chat.usage(answers)}
        if self.keep:
            decides = [self.task.hash, settings_identity(self.method), self.identity]
            content = json.dumps(decides, sort_keys=True, default=str)
            key = hashlib.sha256(content.encode()).hexdigest()[:12]
            folder = cache_folder("expansions") / slug(self.task.name) / key
            path = file_in(folder, self.method.prompts, self.method.llm)
            write_generations(queries, path)
            work["generations_kept"] = str(path)
        return self.method.expansion(queries, work)


Bound = FromFile | FromModel
