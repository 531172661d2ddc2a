"""The names a system may be built from: data files of every room, read once, overridden by options.

Published is one mechanism: an entry says what it was published as, where it deviates, how deep
its runs go, how ties are ordered and what happens below a reranked part. Nothing else decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from r2med.errors import UsageError, nearest
from r2med.plugins import REGISTRY_VARIABLE, RegistryEntry, load_plugins
from r2med.runs.run import TieOrder
from r2med.settings import read_packaged_toml
from r2med.systems.spec import Spec, Unit, map_units, parse, units_of

_PACKAGE = Path(__file__).parents[1]
_CLASS = re.compile(r"[A-Z]\w*")

StageKind = Literal["retriever", "given", "fusion", "expander", "reranker"]

#: Where entries are declared, below the package. Adding a model adds data to one of these.
SOURCES: tuple[str, ...] = (
    "retrieve/bm25/variants.toml",
    "retrieve/dense/encoders.toml",
    "retrieve/api.toml",
    "retrieve/multi.toml",
    "retrieve/run_files.toml",
    "retrieve/fusions.toml",
    "expand/methods.toml",
    "rerank/rerankers.toml",
)

#: What a system is, by its outermost stage.
SystemKind = Literal["base", "gar", "reranker"]
KINDS: tuple[SystemKind, ...] = get_args(SystemKind)
KIND_TITLES: Mapping[SystemKind, str] = {
    "base": "retrieval alone",
    "gar": "expansion",
    "reranker": "reranking",
}


@dataclass(frozen=True)
class Entry:
    """A registered name; `fields` are the backend's own settings, all of them overridable."""

    name: str
    stage: StageKind
    backend: str
    description: str
    argument: str | None = None
    """The field that the text after a ':' sets; None takes no such text."""
    published_as: str | None = None
    published_first: str | None = None
    """The first stage on which a reranker was published."""
    published_depths: tuple[int, ...] = ()
    """The depths at which it was."""
    deviations: tuple[str, ...] = ()
    """How this implementation differs from the published one."""
    peculiarities: tuple[str, ...] = ()
    """How the published protocol, which is implemented here, differs from common practice."""
    depth: int = 100
    ties: TieOrder = "trec"
    tail: str = "keep"
    licence: str = ""
    """Of the weights, where it restricts their use."""
    trained_on: tuple[str, ...] = ()
    """Training data that its authors or a registry of models declare, as far as a task has it."""
    trained_on_source: str = ""
    source: str = ""
    """Where its settings were read."""
    unverified: str = ""
    """Which of them could not be."""
    protocols: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Settings of others for the same model, by name: `e5[protocol=mteb]`."""
    fields: Mapping[str, object] = field(default_factory=dict)

    def override(self, options: Mapping[str, str]) -> Entry:
        """The entry with some fields replaced by texts, which its backend's settings read."""
        changed = dict(self.fields)
        if self.stage == "reranker":
            changed["tail"] = self.tail
        options = dict(options)
        if (protocol := options.pop("protocol", None)) is not None:
            if protocol not in self.protocols:
                only = "It has only its own."
                known = nearest(protocol, self.protocols) if self.protocols else only
                option = f"{self.name}[protocol={protocol[:60]}]"
                raise UsageError(f"{option}: {self.name} has no such protocol. {known}")
            changed |= self.protocols[protocol]
        arguments = [*self.fields.get("arguments", ())]  # type: ignore[misc]
        for key, text in options.items():
            if key not in changed and "arguments" in changed:
                arguments.append(f"{key}={text}")
                changed["arguments"] = arguments
                continue
            if key not in changed or key == "arguments":
                raise UsageError(
                    f"{self.name}[{key}={text[:60]}]: {self.name} has no option {key!r}. "
                    f"{nearest(key, changed)}"
                )
            changed[key] = text
        tail = str(changed.pop("tail", self.tail))
        return replace(self, fields=MappingProxyType(changed), tail=tail)


#: What may stand after a '|', an expander in front of a retriever aside.
FOLLOWING: tuple[StageKind, ...] = ("reranker", "fusion")
#: What may stand first.
LEADING: tuple[StageKind, ...] = ("retriever", "given", "expander")


def require_entry(unit: Unit, stages: tuple[StageKind, ...] = LEADING) -> Entry:
    """The entry of a unit where one of some stages may stand; the error offers what may be meant.

    A folder may be an encoder, or a cross-encoder after a '|'; `module:Class` may be a class.
    """
    if (entry := find_entry(unit.name)) is not None:
        return entry
    after = stages == FOLLOWING
    known = [name for name, each in entries().items() if each.stage in stages]
    hint = nearest(unit.name, known)
    if unit.argument and _CLASS.fullmatch(unit.argument):
        hint = f"A class of yours is written '{'own' if after else 'model'}:{unit}'."
    elif hint.startswith("Known"):
        if unit.argument is None and Path(unit.name).is_dir():
            hint = f"The model in that folder is written '{'ce' if after else 'dense'}:./{unit}'."
        elif after:
            hint += "\nA reranker of yours is written 'own:module:Class'; see docs/rerankers.md."
    what = "reranker or fusion" if after else "system"
    raise UsageError(f"{what} {str(unit)!r} is not known. {hint}")


def configure(unit: Unit) -> Entry:
    """The entry of a unit with its argument and options put in."""
    entry = require_entry(unit)
    options = dict(unit.options)
    if unit.argument is not None:
        if entry.argument is None:
            raise UsageError(f"system {unit}: {unit.name} takes no argument after ':'.")
        options[entry.argument] = unit.argument
    return entry.override(options)


def spell_registered(spec: Spec) -> Spec:
    """A system with the registered spelling of every name, under which its results are stored."""

    def spell(unit: Unit) -> Unit:
        entry = find_entry(unit.name)
        if entry is None:
            return unit
        argument = unit.argument
        if argument and entry.argument == "llm":
            from r2med.remote.registry import find_llm

            argument = find_llm(argument, anything=True).name
        return replace(unit, name=entry.name, argument=argument)

    return map_units(spec, spell)


def parts_of(system: str) -> list[tuple[Unit, Entry | None]]:
    """Every unit of a system's text with its entry; None for a name that is not registered."""
    return [(unit, find_entry(unit.name)) for unit in units_of(parse(system))]


#: An option or argument that is a name or number, not a path or a Python class.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
#: Backends that read a file or import a module named in the spec.
_FROM_USER = ("run", "candidates", "custom", "own", "own-code")


def is_plain(system: str) -> bool:
    """Whether a spec names only registered stages: no file, no folder, no Python class."""
    try:
        parts = parts_of(system)
    except UsageError:
        return False
    words = [value for unit, _ in parts for _, value in unit.options]
    words += [unit.argument for unit, _ in parts if unit.argument]
    registered = all(entry and entry.backend not in _FROM_USER for _, entry in parts)
    return registered and all(_WORD.fullmatch(word) for word in words)


def kind_of(spec: Spec) -> SystemKind:
    """What the outermost stage is: a reranker at the end, an expander in front, or neither."""
    if spec.stages and _stage_of(spec.stages[-1]) == "reranker":
        return "reranker"
    if spec.stages and len(spec.fused) == 1 and _stage_of(spec.fused[0]) == "expander":
        return "gar"
    return "base"


def first_stage(spec: Spec, kind: SystemKind) -> Spec | None:
    """The system without its outermost stage; None where there is nothing below it."""
    if kind == "base" or not spec.stages:
        return None
    if kind == "reranker":
        return _flat(Spec(spec.fused, spec.stages[:-1]))
    return _flat(Spec((spec.stages[0],), spec.stages[1:]))


def members_of(spec: Spec) -> tuple[Spec, ...]:
    """The systems that this one is made of, each of which could stand alone; none for a retriever.

    A fusion's are its members, a reranker's and an expander's what they stand upon.
    """
    below = first_stage(spec, kind_of(spec))
    if below is not None:
        return (below, *members_of(below))
    if len(spec.fused) < 2 or spec.stages:
        return ()
    alone = [_flat(Spec((part,))) for part in spec.fused]
    return tuple(each for part in alone for each in (part, *members_of(part)))


def _flat(spec: Spec) -> Spec:
    """Drop parentheses that say nothing, so that equal systems have equal texts."""
    alone = spec.fused[0] if len(spec.fused) == 1 else None
    return Spec(alone.fused, alone.stages + spec.stages) if isinstance(alone, Spec) else spec


def _stage_of(part: Unit | Spec) -> str | None:
    known = find_entry(part.name) if isinstance(part, Unit) else None
    return known.stage if known else None


def find_entry(name: str) -> Entry | None:
    """The entry of a name, in any case; plugins are read only for names that r2med lacks."""
    lowered = name.lower()
    return packaged_entries().get(lowered) or added_entries().get(lowered)


def entries() -> Mapping[str, Entry]:
    """All registered names: those of r2med, then those of plugins and the registry file."""
    return MappingProxyType({**packaged_entries(), **added_entries()})


@cache
def packaged_entries() -> Mapping[str, Entry]:
    """The names that r2med has."""
    registry: dict[str, Entry] = {}
    for source in SOURCES:
        declared = dict(read_packaged_toml(source))
        defaults = declared.pop("defaults", {})
        for name, table in declared.items():
            registry[name] = _read_entry(name, defaults.get(table["backend"], {}) | table)
    return MappingProxyType(registry)


def added_entries() -> Mapping[str, Entry]:
    """The names that plugins and the registry file add."""
    added: dict[str, Entry] = {}
    for name, entry in load_plugins().systems.items():
        if name.lower() in packaged_entries():
            raise UsageError(
                f"{entry.where}: r2med already has a system {name!r}. Give yours another name."
            )
        added[name.lower()] = _read_added(entry)
    return MappingProxyType(added)


def _read_added(entry: RegistryEntry) -> Entry:
    """An entry of a plugin or registry file: `like` an entry of r2med, or of a `backend`."""
    table = {"description": f"added by {entry.source}", **entry.fields}
    if (base_name := table.pop("like", None)) is not None:
        base = packaged_entries().get(str(base_name).lower())
        if base is None:
            raise UsageError(
                f"{entry.where}: like = {base_name!r} is not a system of r2med. "
                f"{nearest(str(base_name), packaged_entries())}"
            )
        shared = {"stage", "backend", "argument", "depth", "ties", "tail", "licence"}
        inherited = {name: getattr(base, name) for name in shared} | dict(base.fields)
    else:
        inherited = _defaults(str(table.get("backend")))
    table = inherited | table
    if not isinstance(table.get("backend"), str):
        raise UsageError(
            f'{entry.where}: the field "backend" is missing. Write, for example, '
            'backend = "dense", or like = "bm25".'
        )
    if table["backend"] in _FROM_USER and not entry.may_run_code:
        raise UsageError(
            f"{entry.where}: backend {table['backend']!r} runs Python code, which a file in the "
            f"working folder may not ask for. Name the file in {REGISTRY_VARIABLE} if you trust it."
        )
    return _read_entry(entry.name, table)


def _defaults(backend: str) -> dict[str, Any]:
    """The packaged defaults of a backend; none for a backend that a plugin adds."""
    for source in SOURCES:
        defaults = read_packaged_toml(source).get("defaults", {})
        if backend in defaults:
            return dict(defaults[backend])
    return {}


def _read_entry(name: str, table: Mapping[str, Any]) -> Entry:
    """An entry from its table; keys that are not fields of an entry are settings of its backend."""
    own_fields = {field.name for field in fields(Entry)} - {"name", "fields"}
    shared: dict[str, Any] = {"stage": "retriever"}
    settings: dict[str, object] = {}
    for key, value in table.items():
        if key in own_fields:
            shared[key] = tuple(value) if isinstance(value, list) else value
        else:
            settings[key] = value
    return Entry(name, fields=MappingProxyType(settings), **shared)
