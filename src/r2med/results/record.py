"""A result: run, scores by query, and provenance; reports and comparisons read nothing else.

`result.json` has a documented, versioned schema: docs/results.md describes every field, and
`SCHEMA` increases if a meaning changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from r2med.algorithms import without_task_specifics
from r2med.errors import DamagedError
from r2med.measure.metrics import HEADLINE
from r2med.measure.scores import Scores
from r2med.results.stage_record import AnswerCounts, StageRecord
from r2med.runs import Run
from r2med.runs.files import read_run
from r2med.runs.run import TieOrder, sort_lists
from r2med.schema import read_values
from r2med.storage import read_bytes, seal, unseal
from r2med.systems.output import StageCost
from r2med.tables import html_table
from r2med.versions import installed_versions

SCHEMA = 1
_LIBRARIES = ("r2med", "numpy", "pyarrow", "scipy")

RECORD_FILE = "result.json"
RUN_FILE = "run.parquet"
SCORES_FILE = "scores.parquet"
#: Bytes of the largest record and table that are read.
_LARGEST_RECORD = 64 * 1024**2
_LARGEST_TABLE = 4 * 1024**3
#: Characters of a result's key in tables, and of a system's key.
_KEY_SHOWN = 8
_SYSTEM_KEY = 32


@dataclass(frozen=True)
class TaskRecord:
    """The task and the hash of the data that was searched."""

    name: str
    suite: str | None
    hash: str
    documents: int
    queries: int
    judged_queries: int
    notices: tuple[str, ...]
    differences: tuple[str, ...] = ()
    """How the data differs from the task's manifest; empty for the published data."""
    folder: str | None = None
    """Folder of a local task, relative to the results folder: FOLDER or FOLDER#SPLIT."""

    @property
    def skipped_queries(self) -> int:
        """How many queries have no judgements and are not scored."""
        return max(0, self.queries - self.judged_queries)


@dataclass(frozen=True)
class SystemRecord:
    """The system: its spec, its stages, and everything that decides its rankings."""

    spec: str
    identity: Mapping[str, Any]
    depth: int
    ties: TieOrder
    published_as: str | None
    deviations: tuple[str, ...]
    stage: StageRecord
    """The last stage; the others are its inputs."""
    label: str | None = None
    """Display name; not part of the identity, so it can change."""
    other_specs: tuple[str, ...] = ()
    """Other specs with the same identity under which the system was evaluated."""

    @cached_property
    def key(self) -> str:
        """Hash of the identity without the parts that depend on the task.

        Results of one system on several tasks share it.
        """
        content = json.dumps(without_task_specifics(self.identity), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:_SYSTEM_KEY]


@dataclass(frozen=True)
class RerankRecord:
    """The candidates of a reranker, and the best score that any order of them could have."""

    first: str
    """Spec of the system whose candidates were reranked."""
    depth: int
    tail: str
    """Documents below `depth` follow the reranked ones (`keep`) or are left out (`drop`)."""
    ceiling: Mapping[str, float]
    """Scores of a perfect reranking of the same candidates, by metric."""


@dataclass(frozen=True)
class SafeguardRecord:
    """The effect of positives that were added to the candidates on purpose."""

    queries: int
    metrics_without: Mapping[str, float]


@dataclass(frozen=True)
class SamplesRecord:
    """The scores of each sample of an expander, searched separately (`combine=fuse`)."""

    metrics: tuple[Mapping[str, float], ...]
    """The scores of each sample, by metric."""
    variance: Mapping[str, float]
    """The unbiased variance over the samples, by metric."""

    @classmethod
    def of(cls, metrics: Sequence[Mapping[str, float]]) -> SamplesRecord | None:
        """Return the record of two or more samples; None for fewer."""
        if len(metrics) < 2:
            return None
        from statistics import variance  # only expanders need it

        names = metrics[0]
        return cls(
            tuple(metrics), {name: variance(sample[name] for sample in metrics) for name in names}
        )


@dataclass(frozen=True)
class Record:
    """Everything in a result except its tables."""

    task: TaskRecord
    system: SystemRecord
    metrics: Mapping[str, float]
    micro: Mapping[str, float]
    seconds: Mapping[str, float]
    facts: Mapping[str, Mapping[str, Any]]
    created: str
    costs: tuple[StageCost, ...] = ()
    """What each step of the evaluation cost, in order."""
    reranking: RerankRecord | None = None
    safeguard: SafeguardRecord | None = None
    samples: SamplesRecord | None = None
    """Scores of samples; None unless an expander fuses the runs of its samples."""
    versions: Mapping[str, str] = field(default_factory=lambda: library_versions())
    machine: Mapping[str, Any] = field(default_factory=lambda: machine())
    files: Mapping[str, str] = field(default_factory=dict)
    """sha256 of the tables, by file name."""
    schema: int = SCHEMA

    @cached_property
    def key(self) -> str:
        """Hash of the task's data and everything that decides the ranking."""
        return result_key(self.task.hash, self.system.identity, self.system.ties)

    @property
    def stages(self) -> tuple[StageRecord, ...]:
        """The stages of the system in the order of execution."""
        return tuple(self.system.stage.walk())

    @property
    def answers(self) -> AnswerCounts | None:
        """Counts of language model answers that could not be used; None if no stage has any."""
        return AnswerCounts.sum_over(stage.answers for stage in self.stages)

    def model_inputs(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yield facts on the texts that models read, with the stage and side of each.

        A side is documents, queries or generated.

        The facts have the number of texts, the first one, and the share that was truncated.
        """
        for stage, facts in self.facts.items():
            for side in ("documents", "queries", "generated"):
                if isinstance(facts.get(side), Mapping) and "first" in facts[side]:
                    yield stage, side, facts[side]

    def to_json(self) -> str:
        """The content of result.json, with a checksum."""
        return seal(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str, path: Path) -> Record:
        """Parse the content of result.json.

        Raises:
            DamagedError: The content does not match its checksum, or a field has another type.
        """
        values = unseal(text, path)
        if values.get("schema") != SCHEMA:
            raise DamagedError(
                f"{path}: schema {values.get('schema')!r}, expected {SCHEMA}. Another version of "
                "r2med stored this result."
            )
        return read_values(cls, values, path)


@dataclass(frozen=True, slots=True)
class Summary:
    """The fields of a record that lists and leaderboards need; the index of a folder stores it."""

    key: str
    system_key: str
    spec: str
    label: str | None
    other_specs: tuple[str, ...]
    task: str
    suite: str | None
    data: str
    documents: int
    queries: int
    judged_queries: int
    differences: tuple[str, ...]
    task_folder: str | None
    created: str
    seconds: float
    metrics: Mapping[str, float]
    micro: Mapping[str, float]
    answers: AnswerCounts | None
    size: int | None = None
    """Bytes of the result's files; None if they were not counted."""

    @classmethod
    def of(cls, record: Record, key: str | None = None) -> Summary:
        """The summary of a record; `key` is its key, if the caller has computed it."""
        task, system = record.task, record.system
        return cls(
            key=key or record.key,
            system_key=system.key,
            spec=system.spec,
            label=system.label,
            other_specs=system.other_specs,
            task=task.name,
            suite=task.suite,
            data=task.hash,
            documents=task.documents,
            queries=task.queries,
            judged_queries=task.judged_queries,
            differences=task.differences,
            task_folder=task.folder,
            created=record.created,
            seconds=sum(record.seconds.values()),
            metrics=record.metrics,
            micro=record.micro,
            answers=record.answers,
        )


#: The judgements that a task's data has.
BENCHMARK = "benchmark"


def added_judgements(results: Iterable[Result]) -> str:
    """Return the name of the judgements that were added; empty for the benchmark's judgements."""
    names = dict.fromkeys(r.judgements for r in results if r.judgements != BENCHMARK)
    return "; ".join(names)


@dataclass(frozen=True, eq=False)
class Result:
    """One system on one task, as stored in `folder`; files are read when they are needed."""

    folder: Path
    summary: Summary
    reused: bool = False
    """True if the result was stored before and nothing was run."""
    loaded: Record | None = field(default=None, repr=False)
    """The record, if it is already in memory."""
    tables: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Content of the table files that are already in memory, by file name."""
    judgements: str = BENCHMARK
    """Name of the judgements that the scores are based on; stored results have the benchmark's."""

    @classmethod
    def from_record(
        cls,
        folder: Path,
        record: Record,
        *,
        key: str | None = None,
        reused: bool = False,
        tables: Mapping[str, bytes] | None = None,
    ) -> Result:
        """Make a result from a record in memory; `key` is the record's key, if already computed."""
        return cls(folder, Summary.of(record, key), reused, record, tables or {})

    @cached_property
    def record(self) -> Record:
        """The content of result.json; raises DamagedError if the file is damaged."""
        return self.loaded if self.loaded is not None else read_record(self.folder)

    @property
    def system(self) -> str:
        """The system's spec."""
        return self.summary.spec

    @property
    def system_key(self) -> str:
        """Hash of the system's identity, shared by its results on all tasks."""
        return self.summary.system_key

    @property
    def label(self) -> str | None:
        """The label that this result was stored with."""
        return self.summary.label

    @property
    def name(self) -> str:
        """The label; the spec if the system has no label."""
        return self.summary.label or self.summary.spec

    @property
    def key(self) -> str:
        """The first characters of the full key, as `r2med results` shows them."""
        return self.summary.key[:_KEY_SHOWN]

    @property
    def task(self) -> str:
        """The task's name."""
        return self.summary.task

    @property
    def created(self) -> str:
        """When the result was made, as an ISO date in UTC."""
        return self.summary.created

    @property
    def root(self) -> Path:
        """The results folder it is stored in."""
        return self.folder.parents[2]

    @property
    def suite(self) -> str | None:
        """The task's suite; None for a local task."""
        return self.summary.suite

    @property
    def data(self) -> str:
        """Hash of the data that was searched."""
        return self.summary.data

    @property
    def metrics(self) -> Mapping[str, float]:
        """Mean over the judged queries, by metric name."""
        return self.summary.metrics

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by stage."""
        return self.record.seconds

    @cached_property
    def scores(self) -> Scores:
        """One row per judged query, one column per metric."""
        return self._read_scores()

    def scores_by(self, metric: str) -> Scores:
        """The scores by one metric; the others are not read, which takes a tenth of the time."""
        if "scores" in vars(self):
            return replace(self.scores, columns={metric: self.scores[metric]})
        scores = self._read_scores(["query_id", "positives", metric])
        if metric not in scores.columns:
            raise DamagedError(f"{self.folder / SCORES_FILE}: no column {metric!r}.")
        return scores

    def _read_scores(self, columns: list[str] | None = None) -> Scores:
        content = self._table(SCORES_FILE)
        try:
            # Without threads: an Arrow thread that holds Python bytes at exit aborts the process.
            file = pq.ParquetFile(pa.BufferReader(content))
            if file.metadata.num_rows != self.record.task.judged_queries:
                raise DamagedError(
                    f"{self.folder / SCORES_FILE}: {file.metadata.num_rows:,} rows, expected "
                    f"{self.record.task.judged_queries:,}."
                )
            return Scores.from_arrow(file.read(columns=columns, use_threads=False))
        except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as problem:
            raise DamagedError(f"{self.folder / SCORES_FILE}: not readable ({problem}).") from None

    @cached_property
    def run(self) -> Run:
        """The ranked lists as the system returned them."""
        return read_run(self.folder / RUN_FILE, content=self._table(RUN_FILE))[0]

    @property
    def ranked(self) -> Run:
        """The ranked lists, with ties in the order that was used for measuring."""
        return sort_lists(self.run, self.record.system.ties)

    def check_tables(self) -> None:
        """Raise DamagedError if a table does not match its checksum."""
        for name in (RUN_FILE, SCORES_FILE):
            self._table(name)

    def _table(self, name: str) -> bytes:
        if name in self.tables:
            return self.tables[name]
        return read_table(self.folder / name, self.record.files.get(name))

    def _repr_html_(self) -> str:
        """For notebooks: the headline metrics and the notices of the task."""
        names = [name for name in HEADLINE if name in self.metrics]
        title = f"{self.name} on {self.task}, × 100"
        values = [f"{100 * self.metrics[name]:.2f}" for name in names]
        return html_table(title, names, [values], self.record.task.notices)

    def __repr__(self) -> str:
        ndcg = self.metrics.get("ndcg@10", float("nan"))
        return f"Result(system={self.name!r}, task={self.task!r}, ndcg@10={ndcg:.4f})"


def read_record(folder: Path) -> Record:
    """Read and check a result's record; raises DamagedError if the record is damaged."""
    path = folder / RECORD_FILE
    try:
        text = read_bytes(path, limit=_LARGEST_RECORD).decode()
    except (OSError, UnicodeDecodeError) as problem:
        raise DamagedError(f"{path}: not readable ({problem}).") from None
    return Record.from_json(text, path)


def read_table(path: Path, expected: str | None) -> bytes:
    """Return the content of a stored table; DamagedError if its checksum is not `expected`."""
    try:
        content = read_bytes(path, limit=_LARGEST_TABLE)
    except FileNotFoundError:
        raise DamagedError(f"{path}: missing from a stored result.") from None
    except OSError as problem:
        raise DamagedError(f"{path}: not readable ({problem.strerror}).") from None
    if hashlib.sha256(content).hexdigest() != expected:
        raise DamagedError(f"{path}: its checksum differs from the one in {RECORD_FILE}.")
    return content


def result_key(task_hash: str, identity: Mapping[str, object], ties: str) -> str:
    """Hash of everything that decides a ranking: data, system identity and tie order."""
    content = {"schema": SCHEMA, "task": task_hash, "system": identity, "ties": ties}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def library_versions() -> dict[str, str]:
    """Versions of Python and the libraries that could change a number."""
    return {"python": platform.python_version(), **installed_versions(_LIBRARIES)}


def machine() -> dict[str, object]:
    """A description of the machine for measured times, without identifying information."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
    }
