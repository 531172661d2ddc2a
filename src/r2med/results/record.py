"""The stored record of a result: `result.json`, a documented and versioned schema.

docs/results.md describes every field; a change of meaning raises `SCHEMA`.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

SCHEMA = 1
_LIBRARIES = ("r2med", "numpy", "pyarrow", "scipy")


@dataclass(frozen=True)
class TaskRecord:
    """What was searched, and the hash that says exactly which data it was."""

    name: str
    suite: str | None
    hash: str
    documents: int
    queries: int
    judged_queries: int
    notices: tuple[str, ...]


@dataclass(frozen=True)
class SystemRecord:
    """What searched: the text that names it, and everything that decides its rankings."""

    spec: str
    identity: Mapping[str, object]
    depth: int
    ties: str
    published_as: str | None
    deviations: tuple[str, ...]


@dataclass(frozen=True)
class RerankRecord:
    """What a reranker was given, and the most it could have made of it."""

    first: str
    """The system whose candidates were put in order."""
    depth: int
    tail: str
    """Below that depth: `keep` or `drop`."""
    ceiling: Mapping[str, float]
    """Every metric as a perfect reranker of the same candidates would have it."""


@dataclass(frozen=True)
class SafeguardRecord:
    """The effect of positives that were put among the candidates on purpose."""

    queries: int
    metrics_without: Mapping[str, float]


@dataclass(frozen=True)
class Record:
    """All of a result that is not a table."""

    task: TaskRecord
    system: SystemRecord
    metrics: Mapping[str, float]
    micro: Mapping[str, float]
    seconds: Mapping[str, float]
    facts: Mapping[str, Mapping[str, object]]
    created: str
    stages: tuple[Mapping[str, Any], ...] = ()
    """What each piece of work cost, in order: `systems.ledger.StageCost` as JSON."""
    reranking: RerankRecord | None = None
    safeguard: SafeguardRecord | None = None
    versions: Mapping[str, str] = field(default_factory=lambda: library_versions())
    machine: Mapping[str, object] = field(default_factory=lambda: machine())
    files: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA

    def to_json(self) -> str:
        """The text of result.json."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Read result.json back; KeyError, TypeError or ValueError when it is not one."""
        raw = json.loads(text)
        if raw.get("schema") != SCHEMA:
            raise ValueError(f"schema {raw.get('schema')!r}, expected {SCHEMA}")
        task = {**raw.pop("task")}
        system = {**raw.pop("system")}
        reranking, safeguard = raw.pop("reranking", None), raw.pop("safeguard", None)
        return cls(
            task=TaskRecord(**{**task, "notices": tuple(task["notices"])}),
            system=SystemRecord(**{**system, "deviations": tuple(system["deviations"])}),
            reranking=RerankRecord(**reranking) if reranking else None,
            safeguard=SafeguardRecord(**safeguard) if safeguard else None,
            stages=tuple(raw.pop("stages", ())),
            **raw,
        )


def result_key(task_hash: str, identity: Mapping[str, object], ties: str) -> str:
    """The address of a result: equal inputs, equal key; anything that matters changes it."""
    told = {"schema": SCHEMA, "task": task_hash, "system": identity, "ties": ties}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def library_versions() -> dict[str, str]:
    """Versions of everything that could change a number."""
    return {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}


def machine() -> dict[str, object]:
    """What the seconds were measured on; nothing that identifies a person or host."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
    }
