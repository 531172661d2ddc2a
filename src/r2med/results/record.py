"""A result: run, per-query scores and provenance; all that reports and comparisons ever read.

`result.json` is a documented and versioned schema: docs/results.md describes every field, and a
change of meaning raises `SCHEMA`.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from r2med.atomic import seal, unseal
from r2med.errors import DamagedError
from r2med.measure.metrics import HEADLINE
from r2med.measure.scores import Scores
from r2med.runs import Run
from r2med.runs.files import read_run
from r2med.runs.run import TieOrder, ordered
from r2med.tabular import html_table

SCHEMA = 2
_LIBRARIES = ("r2med", "numpy", "pyarrow", "scipy")

RECORD_FILE = "result.json"
RUN_FILE = "run.parquet"
SCORES_FILE = "scores.parquet"
#: Characters of a key that tables show.
_KEY_SHOWN = 8


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
    differences: tuple[str, ...] = ()
    """How the data differs from the manifest of its task."""
    folder: str | None = None
    """Where data of the user's own lies, seen from the results folder: FOLDER or FOLDER#SPLIT."""


@dataclass(frozen=True)
class SystemRecord:
    """What searched: the text that names it, and everything that decides its rankings."""

    spec: str
    identity: Mapping[str, Any]
    depth: int
    ties: str
    published_as: str | None
    deviations: tuple[str, ...]
    label: str | None = None
    """What tables call it; no part of its identity, so it can change."""


@dataclass(frozen=True)
class RerankRecord:
    """The candidates of a reranker, and the best that any reranker could make of them."""

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
    facts: Mapping[str, Mapping[str, Any]]
    created: str
    stages: tuple[Mapping[str, Any], ...] = ()
    """What each piece of work cost, in order: `systems.work.StageCost` as JSON."""
    reranking: RerankRecord | None = None
    safeguard: SafeguardRecord | None = None
    versions: Mapping[str, str] = field(default_factory=lambda: library_versions())
    machine: Mapping[str, Any] = field(default_factory=lambda: machine())
    files: Mapping[str, str] = field(default_factory=dict)
    """sha256 of the tables, by file name."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """sha256 of the source of the user's own classes, by the name of the class."""
    schema: int = SCHEMA

    @cached_property
    def key(self) -> str:
        """The address of the result."""
        return result_key(self.task.hash, self.system.identity, self.system.ties)

    def seen(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """By part and side what a model saw: how many texts, the first, which share was cut."""
        for part, facts in self.facts.items():
            for side in ("documents", "queries", "generated"):
                if isinstance(facts.get(side), Mapping) and "first" in facts[side]:
                    yield part, side, facts[side]

    def to_json(self) -> str:
        """The text of result.json, with a checksum of its content."""
        return seal(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str, path: Path) -> Record:
        """Read result.json back; DamagedError says what is wrong with it."""
        values = unseal(text, path)
        if values.get("schema") != SCHEMA:
            raise DamagedError(
                f"{path}: a result of schema {values.get('schema')}, expected {SCHEMA}. Another "
                "version of r2med stored it."
            )
        parts = {"reranking": RerankRecord, "safeguard": SafeguardRecord}
        parts = {name: kind for name, kind in parts.items() if values.get(name) is not None}
        try:
            for name, kind in {"task": TaskRecord, "system": SystemRecord, **parts}.items():
                values[name] = _read(kind, values[name])
            record: Record = _read(cls, values)
        except (KeyError, TypeError) as problem:
            raise DamagedError(f"{path}: not a readable result ({problem}).") from None
        return record


def _read(kind: Any, values: Mapping[str, Any]) -> Any:
    """A record of what JSON says; what this version does not know is passed over."""
    known = [each.name for each in fields(kind) if each.name in values]
    read = {name: values[name] for name in known}
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in read.items()})


@dataclass(frozen=True, eq=False)
class Result:
    """One system on one task, as stored in `folder`."""

    folder: Path
    record: Record
    reused: bool = False
    """True when the result was already there and nothing was run."""
    alias: str = ""
    """What it is called beside a newer result of the same system's text: see `distinct_results`."""
    held: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Tables that were read with the record; others are read and checked when first asked for."""

    @property
    def system(self) -> str:
        """The text that names the system."""
        return self.record.system.spec

    @property
    def name(self) -> str:
        """What tables, plots and exports call the system: its label, or its text."""
        return self.alias or self.record.system.label or self.system

    @property
    def key(self) -> str:
        """The head of its address, as `r2med results` shows it and takes it."""
        return self.record.key[:_KEY_SHOWN]

    @property
    def task(self) -> str:
        """The task's name."""
        return self.record.task.name

    @property
    def root(self) -> Path:
        """The results folder it is stored in."""
        return self.folder.parents[2]

    @property
    def suite(self) -> str | None:
        """The task's suite; None for data of the user's own."""
        return self.record.task.suite

    @property
    def data(self) -> str:
        """The hash that says exactly which data was searched."""
        return self.record.task.hash

    @property
    def metrics(self) -> Mapping[str, float]:
        """Mean over the judged queries, by metric name."""
        return self.record.metrics

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by stage."""
        return self.record.seconds

    @cached_property
    def scores(self) -> Scores:
        """One row per judged query, one column per metric."""
        content = pa.BufferReader(self._bytes(SCORES_FILE))
        # A thread of Arrow's that still holds bytes of Python's aborts the process when it ends.
        return Scores.from_arrow(pq.ParquetFile(content).read(use_threads=False))

    @cached_property
    def run(self) -> Run:
        """The ranked lists as the system returned them."""
        return read_run(self.folder / RUN_FILE, content=self._bytes(RUN_FILE))[0]

    @property
    def ranked(self) -> Run:
        """The ranked lists in the order in which they were measured: a document's rank is here."""
        return ordered(self.run, cast(TieOrder, self.record.system.ties))

    def _bytes(self, name: str) -> bytes:
        if name in self.held:
            return self.held[name]
        return checked_bytes(self.folder / name, self.record.files.get(name))

    def _repr_html_(self) -> str:
        """For notebooks: the headline metrics, and what a reader of them must know."""
        names = [name for name in HEADLINE if name in self.metrics]
        title = f"{self.name} on {self.task}, × 100"
        values = [f"{100 * self.metrics[name]:.2f}" for name in names]
        return html_table(title, names, [values], self.record.task.notices)

    def __repr__(self) -> str:
        ndcg = self.metrics.get("ndcg@10", float("nan"))
        return f"Result(system={self.name!r}, task={self.task!r}, ndcg@10={ndcg:.4f})"


def checked_bytes(file: Path, expected: str | None) -> bytes:
    """The content of a stored table; DamagedError when it is not what was written."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise DamagedError(f"{file}: missing from a stored result.") from None
    if hashlib.sha256(data).hexdigest() != expected:
        raise DamagedError(f"{file}: its checksum differs from the one in {RECORD_FILE}.")
    return data


def result_key(task_hash: str, identity: Mapping[str, object], ties: str) -> str:
    """The address of a result: equal inputs, equal key; anything that matters changes it."""
    content = {"schema": SCHEMA, "task": task_hash, "system": identity, "ties": ties}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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
