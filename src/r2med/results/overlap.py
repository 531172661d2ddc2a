"""Overlap: tasks whose questions are part of what a model's authors say they trained on.

A task carries the names that its questions have in other collections, a registered model what its
authors declare; where the two meet, a row is flagged, as where a stored audit of such a collection
calls the task contaminated. A model that declares nothing is not cleared.

Outcomes of leakage audits are stored beside the results, one per task and training set: the room
`audit` makes them, cards and leaderboards read them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from r2med.atomic import seal, unseal, write_file
from r2med.errors import DamagedError, UsageError
from r2med.home import slug
from r2med.retrieve.conditions import Tell
from r2med.systems.registry import parts_of
from r2med.tasks.registry import TaskEntry

AUDITS = "audit"
_SCHEMA = 1


@dataclass(frozen=True)
class StoredAudit:
    """What an audit of one training set said of one task."""

    task: str
    hash: str
    """Of the task's data."""
    training: str
    verdict: str
    reason: str
    rows: int
    """Training rows looked at."""
    created: str
    path: Path
    findings: Sequence[Mapping[str, Any]] = ()
    """The strongest of every query, positive and document, strongest first, with evidence."""

    def sentence(self) -> str:
        """The outcome in words."""
        rows = f"{self.rows:,} {'row' if self.rows == 1 else 'rows'}"
        return f"{self.training} ({rows}): {self.verdict}; {self.reason}."


def write_audit(results: Path, values: Mapping[str, Any]) -> Path:
    """Store an outcome; it replaces the one of the same task's data and training set."""
    key = hashlib.sha256(f"{values['hash']}/{values['training']}".encode()).hexdigest()[:12]
    name = f"{slug(values['training'])}-{key}.json"
    path = results / AUDITS / slug(values["task"]) / name
    write_file(path, seal({"schema": _SCHEMA, **values}))
    return path


def stored_audits(results: Path, tell: Tell) -> list[StoredAudit]:
    """Every readable outcome under a results folder, newest first; a damaged one is named."""
    audits = []
    for path in sorted((results / AUDITS).glob("*/*.json")):
        try:
            record = {**unseal(path.read_bytes(), path), "path": path}
            names = [field.name for field in fields(StoredAudit) if field.name in record]
            audits.append(StoredAudit(**{name: record[name] for name in names}))
        except (DamagedError, OSError, TypeError) as problem:
            tell(f"{path}: not a readable audit ({problem}). It is left out; audit again.")
    return sorted(audits, key=lambda audit: audit.created, reverse=True)


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


def flags_of(
    system: str, tasks: Sequence[TaskEntry], audits: Iterable[StoredAudit] = ()
) -> tuple[Flag, ...]:
    """Where the tasks meet what the models of a system declare; none for a text of no system."""
    try:
        models = [entry for _, entry in parts_of(system) if entry]
    except UsageError:
        return ()
    names = {task.name for task in tasks}
    meetings = [(task.name, name, f"is {name}") for task in tasks for name in task.elsewhere]
    meetings += [
        (audit.task, audit.training, f"is contaminated by it: {audit.reason}")
        for audit in audits
        if audit.verdict == "contaminated" and audit.task in names
    ]
    flags = []
    for task, name, why in meetings:
        for model in models:
            for collection in model.trained_on:
                # The collection, a part of it, or its copy by somebody.
                theirs, ours = collection.lower(), name.lower()
                if ours == theirs or ours.startswith(f"{theirs}/") or ours.endswith(f"/{theirs}"):
                    flags.append(Flag(task, model.name, collection, model.trained_on_source, why))
    return tuple(flags)
