"""Stored outcomes of leakage audits: one per task and training set, beside the results.

Cards and leaderboards read them here; the room `audit` makes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r2med.atomic import atomic_file, seal, unseal
from r2med.errors import DamagedError
from r2med.home import slug
from r2med.retrieve.conditions import Tell

FOLDER = "audit"
_SCHEMA = 1
_NOT_PLAIN = ("findings", "path")


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
    findings: Sequence[Mapping[str, Any]]
    """The strongest of every query, positive and document, strongest first, with evidence."""
    path: Path

    def sentence(self) -> str:
        """The outcome in words."""
        rows = f"{self.rows:,} {'row' if self.rows == 1 else 'rows'}"
        return f"{self.training} ({rows}): {self.verdict}; {self.reason}."


def write_audit(results: Path, values: Mapping[str, Any]) -> Path:
    """Store an outcome; it replaces the one of the same task's data and training set."""
    key = hashlib.sha256(f"{values['hash']}/{values['training']}".encode()).hexdigest()[:12]
    name = f"{slug(values['training'])}-{key}.json"
    path = results / FOLDER / slug(values["task"]) / name
    with atomic_file(path) as draft:
        draft.write_text(seal({"schema": _SCHEMA, **values}), encoding="utf-8")
    return path


def stored_audits(results: Path, tell: Tell) -> list[StoredAudit]:
    """Every readable outcome under a results folder, newest first; a damaged one is named."""
    audits = []
    for path in sorted((results / FOLDER).glob("*/*.json")):
        try:
            audits.append(_read(path))
        except DamagedError as problem:
            tell(f"{problem} It is left out; audit again to rebuild it.")
    return sorted(audits, key=lambda audit: audit.created, reverse=True)


def _read(path: Path) -> StoredAudit:
    try:
        record = unseal(path.read_bytes(), path)
        plain = [name for name in StoredAudit.__dataclass_fields__ if name not in _NOT_PLAIN]
        values = {name: record[name] for name in plain}
        return StoredAudit(**values, findings=record.get("findings", ()), path=path)
    except (OSError, KeyError) as problem:
        raise DamagedError(f"{path}: not a readable audit ({problem}).") from None
