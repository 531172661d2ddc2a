"""Overlap: tasks whose questions are part of what a model's authors say they trained on.

A task carries the names that its questions have in other collections, a registered model what its
authors declare; where the two meet, a row is flagged, as where a stored audit of such a collection
calls the task contaminated. A model that declares nothing is not cleared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from r2med.errors import UsageError
from r2med.results.audits import StoredAudit
from r2med.systems.registry import entries
from r2med.systems.spec import parse, units_of
from r2med.tasks.registry import TaskEntry


@dataclass(frozen=True)
class Training:
    """A collection that a model was trained on, and who says so."""

    model: str
    collection: str
    source: str


@dataclass(frozen=True)
class Flag:
    """A task that overlaps with the training data of a model in a system."""

    task: str
    model: str
    collection: str
    source: str
    """Who says that the model was trained on it."""
    why: str
    """What the task has to do with the collection."""

    def __str__(self) -> str:
        return f"{self.model} declares {self.collection}, and {self.task} {self.why}"


def declared_training(system: str) -> tuple[Training, ...]:
    """What the models of a system declare, first stage to last; none for a text of no system."""
    try:
        units = units_of(parse(system))
    except UsageError:
        return ()
    named = [entries()[unit.name.lower()] for unit in units if unit.name.lower() in entries()]
    return tuple(
        Training(entry.name, collection, entry.trained_on_source)
        for entry in named
        for collection in entry.trained_on
    )


def flags_of(
    system: str, tasks: Iterable[TaskEntry], audits: Iterable[StoredAudit] = ()
) -> tuple[Flag, ...]:
    """Where the tasks meet what the models of a system declare."""
    declared = declared_training(system)
    if not declared:
        return ()
    found = [(task.name, name, f"is {name}") for task in tasks for name in task.elsewhere]
    found += [
        (audit.task, audit.training, f"is contaminated by it: {audit.reason}")
        for audit in audits
        if audit.verdict == "contaminated" and audit.task in [task.name for task in tasks]
    ]
    return tuple(
        Flag(task, each.model, each.collection, each.source, why)
        for task, name, why in found
        for each in declared
        if _same(name, each.collection)
    )


def _same(name: str, collection: str) -> bool:
    """Whether a name is that of the collection, of a part of it, or of its copy by somebody."""
    name, collection = name.lower(), collection.lower()
    return (
        name == collection or name.startswith(f"{collection}/") or name.endswith(f"/{collection}")
    )
