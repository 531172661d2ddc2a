"""The registry of stages: entries in TOML files, whose settings can be overridden by options.

Everything about a published system is in its entry: its published name, deviations, depth, tie
order, and the tail below reranked documents. No code depends on the name of a system.
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

StageType = Literal["retriever", "given", "fusion", "expander", "reranker"]

#: The files with entries, relative to the package. A new model is a new entry in one of them.
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

#: The type of a system by its outermost stage.
SystemKind = Literal["base", "gar", "reranker"]
KINDS: tuple[SystemKind, ...] = get_args(SystemKind)
KIND_TITLES: Mapping[SystemKind, str] = {
    "base": "retrieval alone",
    "gar": "expansion",
    "reranker": "reranking",
}


@dataclass(frozen=True)
class Entry:
    """The entry of a registered name."""

    name: str
    stage: StageType
    backend: str
    description: str
    argument: str | None = None
    """The setting that the text after a ':' sets; None if such a text is not allowed."""
    published_as: str | None = None
    published_first: str | None = None
    """The first stage with which a reranker was published."""
    published_depths: tuple[int, ...] = ()
    """The depths with which a reranker was published."""
    deviations: tuple[str, ...] = ()
    """How this implementation differs from the published one."""
    peculiarities: tuple[str, ...] = ()
    """How the published protocol, which is implemented here, differs from common practice."""
    depth: int = 100
    ties: TieOrder = "trec"
    tail: str = "keep"
    licence: str = ""
    """The licence of the weights, if it restricts their use."""
    parameters: float | None = None
    """Active parameters in billions; 0 for word matching, None if unknown."""
    trained_on: tuple[str, ...] = ()
    """Declared training data that overlaps with a task."""
    trained_on_source: str = ""
    source: str = ""
    """Where the settings were taken from."""
    unverified: str = ""
    """Settings that could not be verified."""
    protocols: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Settings of other works for the same model, by work, as in `e5[protocol=mteb]`."""
    fields: Mapping[str, object] = field(default_factory=dict)
    """Settings of the backend, which options can override."""

    def override(self, options: Mapping[str, str]) -> Entry:
        """Return the entry with some settings replaced; their values are checked later."""
        settings = dict(self.fields)
        if self.stage == "reranker":
            settings["tail"] = self.tail
        options = dict(options)
        if (protocol := options.pop("protocol", None)) is not None:
            settings |= self._find_protocol(protocol)
        arguments = [*self.fields.get("arguments", ())]  # type: ignore[misc]
        for key, text in options.items():
            if key not in settings and "arguments" in settings:
                arguments.append(f"{key}={text}")
                settings["arguments"] = arguments
                continue
            if key not in settings or key == "arguments":
                raise UsageError(
                    f"{self.name}[{key}={text[:60]}]: {self.name} has no option {key!r}. "
                    f"{nearest(key, settings)}"
                )
            settings[key] = text
        tail = str(settings.pop("tail", self.tail))
        return replace(self, fields=MappingProxyType(settings), tail=tail)

    def _find_protocol(self, name: str) -> Mapping[str, object]:
        if name in self.protocols:
            return self.protocols[name]
        hint = nearest(name, self.protocols) if self.protocols else "It has only its own."
        raise UsageError(
            f"{self.name}[protocol={name[:60]}]: {self.name} has no such protocol. {hint}"
        )


#: Stages that may follow a '|', besides a retriever after an expander.
FOLLOWING: tuple[StageType, ...] = ("reranker", "fusion")
#: Stages that may come first.
LEADING: tuple[StageType, ...] = ("retriever", "given", "expander")


def require_entry(unit: Unit, stages: tuple[StageType, ...] = LEADING) -> Entry:
    """Return the entry of a unit; for an unknown name, the error suggests a correction.

    `stages` are the types of stages that the error may suggest. A folder may be meant as an
    encoder, or as a cross-encoder after a '|'; `module:Class` may be meant as a Python class.
    """
    if (entry := find_entry(unit.name)) is not None:
        return entry
    is_following = stages == FOLLOWING
    hint = nearest(unit.name, [name for name, entry in entries().items() if entry.stage in stages])
    if unit.argument and _CLASS.fullmatch(unit.argument):
        hint = f"Write a Python class as '{'own' if is_following else 'model'}:{unit}'."
    elif hint.startswith("Known"):
        if unit.argument is None and Path(unit.name).is_dir():
            prefix = "ce" if is_following else "dense"
            hint = f"Write the model in that folder as '{prefix}:./{unit}'."
        elif is_following:
            hint += "\nWrite your own reranker as 'own:module:Class'; see docs/rerankers.md."
    expected = "reranker or fusion" if is_following else "system"
    raise UsageError(f"{expected} {str(unit)!r} is not known. {hint}")


def configure(unit: Unit) -> Entry:
    """Return the entry of a unit, with the unit's argument and options applied."""
    entry = require_entry(unit)
    options = dict(unit.options)
    if unit.argument is not None:
        if entry.argument is None:
            raise UsageError(f"system {unit}: {unit.name} takes no argument after ':'.")
        options[entry.argument] = unit.argument
    return entry.override(options)


def spell_registered(spec: Spec) -> Spec:
    """Return the spec with every name in its registered spelling; results are stored under it."""

    def spell(unit: Unit) -> Unit:
        entry = find_entry(unit.name)
        if entry is None:
            return unit
        argument = unit.argument
        if argument and entry.argument == "llm":
            from r2med.remote.registry import find_llm

            argument = find_llm(argument, allow_unknown=True).name
        return replace(unit, name=entry.name, argument=argument)

    return map_units(spec, spell)


def parts_of(system: str) -> list[tuple[Unit, Entry | None]]:
    """Return every unit of a spec with its entry; None for a name that is not registered."""
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
    """Return the type of a system: by a reranker at its end, or an expander at its start."""
    if spec.stages and _stage_of(spec.stages[-1]) == "reranker":
        return "reranker"
    if spec.stages and len(spec.fused) == 1 and _stage_of(spec.fused[0]) == "expander":
        return "gar"
    return "base"


def first_stage(spec: Spec, system_type: SystemKind) -> Spec | None:
    """Return the system without its outermost stage; None if it has only one stage."""
    if system_type == "base" or not spec.stages:
        return None
    if system_type == "reranker":
        return _flatten(Spec(spec.fused, spec.stages[:-1]))
    return _flatten(Spec((spec.stages[0],), spec.stages[1:]))


def members_of(spec: Spec) -> tuple[Spec, ...]:
    """Return the systems that a system contains; none for a single retriever.

    These are the members of a fusion, and the first stage of a reranker or expander, with all that
    they contain.
    """
    first = first_stage(spec, kind_of(spec))
    if first is not None:
        return (first, *members_of(first))
    if len(spec.fused) < 2 or spec.stages:
        return ()
    members: list[Spec] = []
    for part in spec.fused:
        member = _flatten(Spec((part,)))
        members += [member, *members_of(member)]
    return tuple(members)


def _flatten(spec: Spec) -> Spec:
    """Remove redundant parentheses, so that equal systems have equal texts."""
    only_member = spec.fused[0] if len(spec.fused) == 1 else None
    if isinstance(only_member, Spec):
        return Spec(only_member.fused, only_member.stages + spec.stages)
    return spec


def _stage_of(part: Unit | Spec) -> str | None:
    entry = find_entry(part.name) if isinstance(part, Unit) else None
    return entry.stage if entry else None


def find_entry(name: str) -> Entry | None:
    """Return the entry of a name, ignoring case; plugins load only if r2med has no such name."""
    lowered = name.lower()
    return packaged_entries().get(lowered) or added_entries().get(lowered)


def entries() -> Mapping[str, Entry]:
    """Return all entries by name: those of r2med, then those of plugins and the registry file."""
    return MappingProxyType({**packaged_entries(), **added_entries()})


@cache
def packaged_entries() -> Mapping[str, Entry]:
    """Return the entries of r2med by name."""
    registry: dict[str, Entry] = {}
    for source in SOURCES:
        tables = dict(read_packaged_toml(source))
        defaults = tables.pop("defaults", {})
        for name, table in tables.items():
            registry[name] = _read_entry(name, defaults.get(table["backend"], {}) | table)
    return MappingProxyType(registry)


def added_entries() -> Mapping[str, Entry]:
    """Return the entries of plugins and of the registry file by name."""
    added: dict[str, Entry] = {}
    for name, entry in load_plugins().systems.items():
        if name.lower() in packaged_entries():
            raise UsageError(
                f"{entry.where}: r2med already has a system {name!r}. Choose another name."
            )
        added[name.lower()] = _read_added(entry)
    return MappingProxyType(added)


def _read_added(entry: RegistryEntry) -> Entry:
    """Read an added entry, which is `like` an entry of r2med or names a `backend`."""
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
            f"{entry.where}: backend {table['backend']!r} runs Python code, which is not allowed "
            "for a file in the working folder. If you trust the file, set "
            f"{REGISTRY_VARIABLE} to its path."
        )
    return _read_entry(entry.name, table)


def _defaults(backend: str) -> dict[str, Any]:
    """Return the packaged defaults of a backend; empty for the backend of a plugin."""
    for source in SOURCES:
        defaults = read_packaged_toml(source).get("defaults", {})
        if backend in defaults:
            return dict(defaults[backend])
    return {}


def _read_entry(name: str, table: Mapping[str, Any]) -> Entry:
    """Make an entry from a table; keys that are not fields of `Entry` are backend settings."""
    entry_fields = {field.name for field in fields(Entry)} - {"name", "fields"}
    values: dict[str, Any] = {"stage": "retriever"}
    settings: dict[str, object] = {}
    for key, value in table.items():
        if key in entry_fields:
            values[key] = tuple(value) if isinstance(value, list) else value
        else:
            settings[key] = value
    return Entry(name, fields=MappingProxyType(settings), **values)
