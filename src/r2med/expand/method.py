"""A generation method as its registry entry configures it, checked word by word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, cast, get_args

from r2med.errors import UsageError, nearest
from r2med.expand.combining import Rule
from r2med.expand.prompting import KINDS, TaskKind, methods, shape_of
from r2med.expand.stripping import STRIPPINGS
from r2med.remote.registry import Stripping

Style = Literal["direct", "search-o1", "search-r1"]
Combine = Literal["average", "fuse"]

_LEAST = {"n": 1, "max_tokens": 0, "passages": 0, "words": 0, "turns": 0, "tokens": 0}

_OF_READERS = ("search", "passages", "words")
_OF_AGENTS = ("turns", "tokens")


@dataclass(frozen=True)
class Method:
    """All that an entry of methods.toml may say; that file documents each field."""

    llm: str
    prompts: str
    style: Style
    lexical: str
    dense: tuple[str, ...]
    strip: Stripping
    generations: str
    n: int
    combine: Combine
    kind: TaskKind | Literal["auto"]
    max_tokens: int
    search: str
    passages: int
    words: int
    turns: int
    tokens: int

    @classmethod
    def read(cls, values: Mapping[str, object]) -> Method:
        """From the registry's fields; a word or number that cannot be is a UsageError."""
        known = {field.name: values[field.name] for field in fields(cls)}
        dense = known["dense"]
        known["dense"] = (dense,) if isinstance(dense, str) else tuple(cast("list[str]", dense))
        method = cls(**cast("dict[str, Any]", known))
        method._check()
        return method

    @property
    def rule(self) -> Rule:
        """How query and generation are combined when the model does not reason."""
        return Rule(self.lexical, self.dense)

    @property
    def agent(self) -> bool:
        """Whether the model may search while it reasons."""
        return self.style != "direct"

    @property
    def reads(self) -> bool:
        """Whether the model is shown passages that a search found, at once or when it asks."""
        return self.agent or shape_of(self.prompts).reads

    def _check(self) -> None:
        if not self.llm:
            raise UsageError(
                f"{self.prompts}: which model? Write it after a colon, as in "
                f"'{self.prompts}:qwen-7b | bm25'; docs/llms.md lists the names."
            )
        for name, allowed in {"prompts": methods(), **_CHOICES}.items():
            value = getattr(self, name)
            if value not in allowed:
                raise UsageError(
                    f"{self.prompts}[{name}={value}] is not known. {nearest(value, allowed)}"
                )
        self._check_unused()
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                found = f"{self.prompts}[{name}={getattr(self, name)}]"
                raise UsageError(f"{found}: expected {least} or more.")
        if self.search and not (self.passages and self.words):
            raise UsageError(f"{self.prompts}: passages and words must be 1 or more to read.")
        if self.reads and not self.search:
            who = "an agent" if self.agent else "a method that reads"
            raise UsageError(f"{self.prompts}: {who} needs a retriever, as in [search=bm25].")
        _ = self.rule

    def _check_unused(self) -> None:
        """Refuse options without effect; where a method has no use for one, its entry leaves it."""
        unused = [] if self.agent else [*_OF_AGENTS]
        unused += [] if self.reads else [*_OF_READERS]
        for name in unused:
            if value := getattr(self, name):
                why = "does not search" if name in _OF_READERS else "is no agent and asks once"
                raise UsageError(
                    f"{self.prompts}[{name}={value}] has no effect: {self.prompts} {why}. "
                    f"Leave {name} out."
                )


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "style": get_args(Style),
    "strip": STRIPPINGS,
    "combine": get_args(Combine),
    "kind": ("auto", *KINDS),
}
