"""A generation method as its registry entry configures it: what is asked, and what is searched.

Queries and their generations become what is searched for by the method's rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from r2med.errors import UsageError
from r2med.expand.agents import Trace
from r2med.expand.answers import Sample, strip
from r2med.expand.prompts import TaskKind, filled, read_prompt
from r2med.remote.registry import LLM, Stripping, find_llm
from r2med.retrieve.interface import Part, QueryForm
from r2med.settings import setting

_QUERY = "{query}"
_GENERATED = "{generated}"
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
        return Expansion(queries, self.rule, self.combine == "fuse" and self.n > 1, work)

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
        if self.search and not (self.passages and self.words):
            raise UsageError(f"{self.prompts}: passages and words must be 1 or more to read.")
        if reads and not self.search:
            who = "an agent" if self.agent else "a method that reads"
            raise UsageError(f"{self.prompts}: {who} needs a retriever, as in [search=bm25].")
        Rule(self.lexical, self.dense)


@dataclass(frozen=True)
class Rule:
    """Templates with {query} and {generated}: one for words, one or more for vectors to average."""

    lexical: str
    dense: tuple[str, ...]

    def __post_init__(self) -> None:
        for template in (self.lexical, *self.dense):
            if _QUERY not in template and _GENERATED not in template:
                raise UsageError(
                    f"combination rule {template!r}: expected {_QUERY} or {_GENERATED} in it."
                )

    def form(self, query_id: str, query: str, answers: Sequence[str]) -> QueryForm:
        """One query as it is searched for; without any answer it stands for itself.

        Several answers are joined by a space for words; for vectors each gives a part of its own,
        and the query enters the mean once.
        """
        if not answers:
            return QueryForm(query_id, query, (Part(query),))
        lexical = filled(self.lexical, query=query, generated=" ".join(answers))
        dense = tuple(
            Part(filled(template, query=query, generated=answer), _QUERY not in template)
            for template in self.dense
            for answer in (answers if _GENERATED in template else answers[:1])
        )
        return QueryForm(query_id, lexical, dense)


#: Every method combines so when the model reasons, since only its stripped answer is used.
ANSWER_ALONE = Rule(lexical=_GENERATED, dense=(_QUERY, _GENERATED))


@dataclass(frozen=True)
class Expanded:
    """One query and what was generated for it; agents leave a trace for every sample."""

    query_id: str
    query: str
    samples: tuple[Sample, ...]
    traces: tuple[Trace, ...] = ()

    @property
    def answers(self) -> tuple[str, ...]:
        """The texts that are searched with; none means that the query stands for itself."""
        return _answers(self.samples)


@dataclass(frozen=True)
class Expansion:
    """All queries of a task, expanded by one method and model."""

    queries: tuple[Expanded, ...]
    rule: Rule
    fuse: bool = False
    """Whether each sample is searched by itself and the runs are fused."""
    work: Mapping[str, object] = field(default_factory=dict)
    """Where the generations come from and what they took: calls, tokens, seconds, money."""

    @property
    def source(self) -> str:
        """The file that the generations are from, or the model."""
        return str(self.work.get("generations_from", ""))

    @property
    def variants(self) -> tuple[tuple[QueryForm, ...], ...]:
        """The forms to search with: one set, or one per sample where their runs are fused."""
        if not self.fuse:
            return (self._forms(slice(None)),)
        count = max((len(query.samples) for query in self.queries), default=1)
        return tuple(self._forms(slice(place, place + 1)) for place in range(count))

    @property
    def fallen_back(self) -> tuple[str, ...]:
        """Ids of the queries without one useful generation."""
        return tuple(query.query_id for query in self.queries if not query.answers)

    def facts(self) -> Mapping[str, object]:
        """Counts for the record, and the first query as it is searched for."""
        samples = [sample for query in self.queries for sample in query.samples]
        outcomes = Counter(sample.outcome for sample in samples)
        facts: dict[str, object] = {
            "queries": len(self.queries),
            "generations": len(samples),
            "truncated": outcomes["truncated"],
            "empty": sum(s.outcome != "refused" and not s.answer.strip() for s in samples),
            "refused": outcomes["refused"],
            "fallen_back": len(self.fallen_back),
            **self.work,
        }
        if self.queries:
            first = self.variants[0][0]
            facts["first_lexical"] = first.lexical
            facts["first_dense"] = [part.text for part in first.dense]
        return facts

    def _forms(self, chosen: slice) -> tuple[QueryForm, ...]:
        """Every query as it is searched for with some of its samples."""
        return tuple(
            self.rule.form(each.query_id, each.query, _answers(each.samples[chosen]))
            for each in self.queries
        )


def _answers(samples: Sequence[Sample]) -> tuple[str, ...]:
    return tuple(sample.answer for sample in samples if sample.useful)
