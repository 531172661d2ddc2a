"""Overlap: tasks whose questions are in the declared training data of a model.

A task lists the names of its questions in other collections. A registered model lists the training
data that its authors declare. A leaderboard row is flagged if a name is in both lists, or if a
stored audit of declared training data calls the task contaminated. A model without declared
training data may still overlap.

Outcomes of leakage audits are stored in the results folder, one per task and training set. The
command `r2med audit` makes them; cards and leaderboards read them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r2med.errors import DamagedError, UsageError, plural
from r2med.execution.resources import Warn
from r2med.paths import slug
from r2med.schema import read_values
from r2med.storage import read_bytes, seal, unseal, write_file
from r2med.systems.registry import parts_of
from r2med.tasks.registry import TaskEntry

AUDITS = "audit"
_SCHEMA = 1
#: Bytes of the largest audit that is read.
_LARGEST_AUDIT = 256 * 1024**2


@dataclass(frozen=True)
class StoredAudit:
    """The outcome of an audit of one training set for one task."""

    task: str
    hash: str
    """Hash of the task's data."""
    training: str
    verdict: str
    reason: str
    rows: int
    """Training rows that were scanned."""
    created: str
    findings: tuple[Mapping[str, Any], ...] = ()
    """The strongest finding of every query, positive and document, strongest first."""
    path: str = ""
    """The file that contains the outcome."""

    def sentence(self) -> str:
        """The outcome in one sentence."""
        return f"{self.training} ({plural(self.rows, 'row')}): {self.verdict}; {self.reason}."


def write_audit(results: Path, values: Mapping[str, Any]) -> Path:
    """Store an outcome; an earlier one of the same data and training set is replaced."""
    key = hashlib.sha256(f"{values['hash']}/{values['training']}".encode()).hexdigest()[:12]
    name = f"{slug(values['training'])}-{key}.json"
    path = results / AUDITS / slug(values["task"]) / name
    write_file(path, seal({"schema": _SCHEMA, **values}))
    return path


def stored_audits(results: Path, tell: Warn) -> list[StoredAudit]:
    """Return all readable outcomes in a results folder, newest first; report the damaged ones."""
    audits = []
    for path in sorted((results / AUDITS).glob("*/*.json")):
        try:
            record = unseal(read_bytes(path, limit=_LARGEST_AUDIT), path) | {"path": str(path)}
            audits.append(read_values(StoredAudit, record, path))
        except (DamagedError, OSError) as problem:
            tell(f"{path}: not a readable audit ({problem}). It is left out; audit again.")
    return sorted(audits, key=lambda audit: audit.created, reverse=True)


@dataclass(frozen=True)
class Flag:
    """The overlap of a task with the training data of a model in a system."""

    task: str
    model: str
    collection: str
    source: str
    """The source of the statement that the model was trained on the collection."""
    why: str
    """How the task is related to the collection."""

    def __str__(self) -> str:
        return f"{self.model} declares {self.collection}, and {self.task} {self.why}"


def flags_of(
    system: str, tasks: Sequence[TaskEntry], audits: Iterable[StoredAudit] = ()
) -> tuple[Flag, ...]:
    """Overlaps of the tasks with the declared training data of a system's models."""
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
                declared, task_name = collection.lower(), name.lower()
                if (
                    task_name == declared
                    or task_name.startswith(f"{declared}/")
                    or task_name.endswith(f"/{declared}")
                ):
                    flags.append(Flag(task, model.name, collection, model.trained_on_source, why))
    return tuple(flags)
