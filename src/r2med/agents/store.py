"""Store imported trace sets in the results folder.

Each set is a file: the first line describes the set, and every other line is a trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from r2med.agents.sources import SourceFormat, TraceSet, read_source
from r2med.agents.trace import AgentTrace
from r2med.errors import DamagedError, UsageError
from r2med.judge.log import Warn
from r2med.paths import slug
from r2med.schema import read_values
from r2med.storage import seal, unseal, write_file
from r2med.tables import Tabular, make_table, table_columns
from r2med.tasks.task import Task

FOLDER = "agents"
_SUFFIX = ".traces"
_LOCAL = "local"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,79}")


@dataclass(frozen=True)
class TraceSetRow:
    """The description of a stored trace set, which is the first line of its file."""

    name: str
    task: str
    data: str
    format: SourceFormat
    source: str
    imported: str
    """When the trace set was imported, as an ISO time."""
    queries: int
    traces: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class StoredTraceSets(Tabular):
    """The descriptions of all trace sets in a results folder."""

    rows: tuple[TraceSetRow, ...]

    is_drawn = True

    def to_arrow(self) -> pa.Table:
        """One row per trace set."""
        return make_table(table_columns(TraceSetRow), [asdict(row) for row in self.rows])


class TraceStore:
    """Saves and finds trace sets in a results folder."""

    def __init__(self, results: Path) -> None:
        self.results = results

    def find(self, source: str, task: Task, *, warn: Warn) -> TraceSet:
        """Return the trace set stored as `source`; otherwise read `source` as a path or system."""
        path = self._path(task, source) if _NAME.fullmatch(source) else None
        if path is not None and path.is_file():
            return self._load(path, task)
        return read_source(source, task, self.results, warn=warn)

    def save(self, trace_set: TraceSet, task: Task, name: str, *, force: bool) -> Path:
        """Store a trace set under a name and return the path of the file."""
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"--agent {name}: expected letters, digits and . _ = -, at most 80 characters."
            )
        path = self._path(task, name)
        if path.exists() and not force:
            raise UsageError(
                f"{name} is already imported for {task.name}. Choose another name with --agent, or "
                "overwrite it with --force."
            )
        description = TraceSetRow(
            name=name,
            task=task.name,
            data=task.hash,
            format=trace_set.format,
            source=trace_set.source,
            imported=datetime.now(UTC).isoformat(timespec="seconds"),
            queries=len(trace_set.query_ids),
            traces=len(trace_set.traces),
            problems=trace_set.problems,
        )
        records = (asdict(description), *(asdict(trace) for trace in trace_set.traces))
        write_file(path, "".join(seal(record, indent=None) for record in records))
        return path

    def list_sets(self) -> StoredTraceSets:
        """Return the descriptions of all stored trace sets."""
        paths = sorted((self.results / FOLDER).glob(f"*/*/*{_SUFFIX}"))
        return StoredTraceSets(tuple(_read_description(path) for path in paths))

    def _load(self, path: Path, task: Task) -> TraceSet:
        lines = path.read_text(encoding="utf-8").splitlines()
        description = _read_description(path)
        if description.data != task.hash:
            raise UsageError(
                f"{description.name} was imported for another version of {task.name}. Import it "
                "again with --force."
            )
        traces = tuple(_read_traces(lines[1:], path))
        if len(traces) != description.traces:
            raise DamagedError(
                f"{path}: {len(traces)} traces, expected {description.traces}; the file is cut "
                "off. Import it again with --force."
            )
        return TraceSet(
            description.name,
            description.task,
            description.data,
            description.format,
            description.source,
            traces,
            description.problems,
        )

    def _path(self, task: Task, name: str) -> Path:
        folder = self.results / FOLDER / slug(task.suite or _LOCAL) / slug(task.name)
        return folder / f"{name}{_SUFFIX}"


def _read_description(path: Path) -> TraceSetRow:
    with path.open(encoding="utf-8") as file:
        return read_values(TraceSetRow, unseal(file.readline(), path), path)


def _read_traces(lines: list[str], path: Path) -> Iterator[AgentTrace]:
    for number, line in enumerate(lines, 2):
        where = f"{path}, line {number}"
        yield read_values(AgentTrace, unseal(line, where), where)
