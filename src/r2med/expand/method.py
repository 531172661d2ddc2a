"""A generation method as its registry entry configures it: what is asked, and what is searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from r2med.errors import UsageError
from r2med.expand.answers import strip
from r2med.expand.combining import ANSWER_ALONE, Expanded, Expansion, Rule
from r2med.expand.prompts import TaskKind, shape_of
from r2med.remote.registry import LLM, Stripping, find_llm
from r2med.settings import setting

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
        """How query and generation are combined, given whether the model reasons."""
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
        reads = self.agent or shape_of(self.prompts).reads
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
