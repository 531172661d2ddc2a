"""Active parameters of a system: the total size of the models that process a query."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from r2med.errors import UsageError
from r2med.remote.registry import find_llm
from r2med.systems.registry import Entry, configure, parts_of
from r2med.systems.spec import Unit

#: Options that replace a model by another one, whose size is not known.
_MODEL_OPTIONS = frozenset({"checkpoint", "query_checkpoint", "base", "target"})


def count_active_parameters(system: str) -> float | None:
    """Return the active parameters of all stages of a system, in billions.

    The sizes are those of the registries of systems and of language models. A model that works in
    two stages counts twice. None if the size of a model is unknown.

    Args:
        system: A system spec.
    """
    try:
        sizes = [_size(unit, entry) for unit, entry in parts_of(system)]
    except UsageError:  # a printed system that is not registered, or an unknown language model
        return None
    return _sum_if_known(sizes)


def _size(unit: Unit, entry: Entry | None) -> float | None:
    if entry is None:  # works print rerankers by the name of their language model
        return find_llm(unit.name).active_parameters
    if entry.stage == "fusion":
        return 0.0
    options = {name for name, _ in unit.options}
    if unit.argument and entry.argument is not None:
        options.add(entry.argument)
    if options & _MODEL_OPTIONS:
        return None
    if llm := str(configure(unit).fields.get("llm", "")):
        return find_llm(llm).active_parameters
    return entry.parameters


def _sum_if_known(sizes: Sequence[float | None]) -> float | None:
    known_sizes = [size for size in sizes if size is not None]
    return fsum(known_sizes) if len(known_sizes) == len(sizes) else None
