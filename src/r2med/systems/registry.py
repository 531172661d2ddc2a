"""The names a system may be built from: data files of every room, read once, overridden by options.

Published is one mechanism: an entry says what it was published as, where it deviates, how deep
its runs go, how ties are ordered and what happens below a reranked part. Nothing else decides.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, cast

from r2med.errors import UsageError, nearest
from r2med.runs.ties import TieOrder
from r2med.systems.spec import Spec, Unit, mapped

_PACKAGE = Path(__file__).parents[1]

StageKind = Literal["retriever", "given", "fusion", "expander", "reranker"]

#: Where entries are declared, below the package. Adding a model adds data to one of these.
SOURCES: tuple[str, ...] = (
    "retrieve/bm25/variants.toml",
    "retrieve/dense/encoders.toml",
    "retrieve/api/encoders.toml",
    "retrieve/multi.toml",
    "retrieve/given/names.toml",
    "retrieve/fusions.toml",
    "expand/methods.toml",
    "rerank/rerankers.toml",
)

_SHARED = (
    "stage",
    "engine",
    "argument",
    "description",
    "published_as",
    "published_first",
    "published_depths",
    "deviations",
    "depth",
    "ties",
    "tail",
)


@dataclass(frozen=True)
class Entry:
    """A registered name; `fields` are the engine's own settings, all of them overridable."""

    name: str
    stage: StageKind
    engine: str
    description: str
    argument: str | None = None
    """The field that the text after a ':' sets; None takes no such text."""
    published_as: str | None = None
    published_first: str | None = None
    """The first stage on which a reranker was published."""
    published_depths: tuple[int, ...] = ()
    """The depths at which it was."""
    deviations: tuple[str, ...] = ()
    depth: int = 100
    ties: TieOrder = "trec"
    tail: str = "keep"
    fields: Mapping[str, object] = field(default_factory=dict)

    def overridden(self, options: Mapping[str, str]) -> Entry:
        """The entry with some fields replaced; values take the type of what they replace."""
        changed = dict(self.fields)
        if self.stage == "reranker":
            changed["tail"] = self.tail
        for key, text in options.items():
            if key not in changed:
                raise UsageError(
                    f"{self.name}[{key}={text}]: {self.name} has no option {key!r}. "
                    f"{nearest(key, changed)}"
                )
            changed[key] = _typed(text, changed[key], f"{self.name}[{key}={text}]")
        tail = str(changed.pop("tail", self.tail))
        return replace(self, fields=MappingProxyType(changed), tail=tail)


def find_entry(name: str) -> Entry:
    """The entry of a name, or an error that offers the nearest known names."""
    entry = entries().get(name.lower())
    if entry is None:
        raise UsageError(f"system {name!r} is not known. {nearest(name, entries())}")
    return entry


def registered(spec: Spec) -> Spec:
    """A system with the registered spelling of every name, under which its results are stored."""
    return mapped(spec, _registered)


def _registered(unit: Unit) -> Unit:
    entry = entries().get(unit.name.lower())
    if entry is None:
        return unit
    argument = unit.argument
    if argument and entry.argument == "llm":
        from r2med.remote.registry import find_llm

        argument = find_llm(argument, anything=True).name
    return replace(unit, name=entry.name, argument=argument)


@cache
def entries() -> Mapping[str, Entry]:
    """All registered names."""
    found: dict[str, Entry] = {}
    for source in SOURCES:
        declared = tomllib.loads((_PACKAGE / source).read_text(encoding="utf-8"))
        defaults = declared.pop("defaults", {})
        for name, table in declared.items():
            found[name] = _entry(name, defaults.get(table["engine"], {}) | table)
    return MappingProxyType(found)


def _entry(name: str, table: dict[str, object]) -> Entry:
    return Entry(
        name=name,
        stage=cast(StageKind, table.get("stage", "retriever")),
        engine=str(table["engine"]),
        description=str(table["description"]),
        argument=cast("str | None", table.get("argument")),
        published_as=cast("str | None", table.get("published_as")),
        published_first=cast("str | None", table.get("published_first")),
        published_depths=tuple(cast("list[int]", table.get("published_depths", []))),
        deviations=tuple(cast("list[str]", table.get("deviations", []))),
        depth=cast(int, table.get("depth", 100)),
        ties=cast(TieOrder, table.get("ties", "trec")),
        tail=str(table.get("tail", "keep")),
        fields=MappingProxyType({k: v for k, v in table.items() if k not in _SHARED}),
    )


def _typed(text: str, replaced: object, where: str) -> object:
    """Read an option's text as the type of the value it replaces."""
    try:
        if isinstance(replaced, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(replaced, int | float):
            return type(replaced)(text)
    except (KeyError, ValueError):
        wanted = "true or false" if isinstance(replaced, bool) else "a number"
        raise UsageError(f"{where}: expected {wanted}, as in {replaced!r}.") from None
    return text
