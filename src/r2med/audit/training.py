"""The audit of a training set: scan it, judge every task, split scores by affected queries.

The module also writes a clean copy of the data, without the rows that contain evaluation texts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from r2med.audit.evaluation import EvaluationTexts, Matcher, Role
from r2med.audit.files import Chunk, TrainingFile, chunks, training_files
from r2med.audit.findings import STRONG, Finding, TaskAudit, task_audits
from r2med.audit.matching import SHORTEST, SHORTEST_CONTAINED, Match, words
from r2med.audit.reading import ReadingCounts, Text, rows
from r2med.audit.scanning import Evidence, Hit, Scan, hit_of, readable_chunks, scan
from r2med.errors import DataError, UsageError
from r2med.execution.resources import Progress, Resources, Warn
from r2med.measure.intervals import DIFFERENCES, Interval, pooled_interval
from r2med.models.encoding import unit
from r2med.results.overlap import AUDITS as FOLDER
from r2med.results.overlap import write_audit
from r2med.results.record import Result
from r2med.results.select import ResultSet
from r2med.results.versions import group_systems
from r2med.retrieve.dense.retriever import DenseRetriever
from r2med.storage import atomic_file
from r2med.systems.build import System
from r2med.systems.stages import Retrieval
from r2med.tables import Tabular, make_table, table_columns
from r2med.tasks.reading.jsonl import write_jsonl
from r2med.tasks.task import Task

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = 4096
_FIELDS_SHOWN = 20
_MEASURES = ("covered", "aligned")
CAUTION = (
    "Affected queries may be easier or harder than the others anyway; the difference alone does "
    "not show that a model profited."
)


@dataclass(frozen=True)
class Effect:
    """A stored score with and without the queries that the training set affects."""

    task: str
    system: str
    name: str
    """The system's label, if it has one."""
    metric: str
    raw: float
    decontaminated: float | None
    """The score over the unaffected queries only; None if there are none."""
    affected: float | None
    affected_queries: int
    unaffected_queries: int
    difference: float | None
    """The mean score of the affected queries minus that of the unaffected ones."""
    interval: Interval | None


@dataclass(frozen=True)
class Audit(Tabular):
    """The outcome of one audit; as a table, one row per finding."""

    is_drawn = True

    training: str
    against: tuple[Role, ...]
    ngram: int
    created: str
    tasks: tuple[TaskAudit, ...]
    effects: tuple[Effect, ...]
    scan: Scan
    sources: tuple[TrainingFile, ...]
    evaluation: EvaluationTexts

    @property
    def rows(self) -> int:
        """The number of scanned training rows."""
        return sum(reading.rows for reading in self.scan.read.values())

    def to_arrow(self) -> pa.Table:
        """One row per finding that counts, with its first evidence."""
        columns = {
            "task": str,
            **table_columns(Finding),
            **table_columns(Evidence),
            "training_text": str,
        }
        rows = [
            {"task": task.task, **vars(first), **first.measures, **vars(finding)}
            | {"training_text": first.text}
            for task in self.tasks
            for finding in task.findings
            for first in finding.evidence[:1]
        ]
        return make_table({**columns, **dict.fromkeys(_MEASURES, float)}, rows)

    def to_json(self) -> dict[str, Any]:
        """Return everything except the individual hits."""
        facts = {name: getattr(self, name) for name in ("training", "against", "ngram", "created")}
        return {
            **facts,
            "rows": self.rows,
            "files": {name: asdict(reading) for name, reading in self.scan.read.items()},
            "failed": self.scan.failed,
            "tasks": [asdict(task) for task in self.tasks],
            "effects": [asdict(effect) for effect in self.effects],
        }


def audit_training(
    training: Sequence[str],
    matcher: Matcher,
    *,
    name: str | None,
    fields: Sequence[str],
    neighbours: Neighbours | None,
    results: Path,
    metric: str,
    strict: bool,
    force: bool,
    progress: Progress,
    warn: Warn,
) -> Audit:
    """Search the training data for the texts of every task, and store the findings.

    If `neighbours` is given, texts of similar meaning are searched for too. The scores of stored
    results are split by affected and unaffected queries. The scan is logged under `results`, so
    that an interrupted audit continues where it stopped; `force` starts from the beginning.
    """
    stored = ResultSet.open(results, warn).results
    files = training_files(training)
    evaluation = matcher.evaluation
    log = results / FOLDER / "progress"
    try:
        scanned = scan(
            files, matcher, log, fields=fields, strict=strict, fresh=force, progress=progress
        )
        _warn_about_problems(scanned, warn)
        if neighbours is not None:
            texts = (
                (chunk.file.name, row.number, text)
                for chunk in readable_chunks(files, {})
                for row in rows(chunk, ReadingCounts(), fields)
                for text in row.texts
            )
            matched = {(hit.file, hit.row, hit.entry) for hit in scanned.hits}
            hits = _neighbours(
                evaluation, texts, neighbours, Resources(progress=progress, warn=warn)
            )
            scanned.hits.extend(
                hit for hit in hits if (hit.file, hit.row, hit.entry) not in matched
            )
    except KeyboardInterrupt as stop:
        stop.add_note(
            f"Finished parts are stored in {results}; run the same command again to continue."
        )
        raise
    audits = task_audits(evaluation, scanned)
    audit = Audit(
        training=name or Path(training[0]).resolve().name,
        against=tuple(dict.fromkeys(role for _, role in evaluation.audited)),
        ngram=matcher.ngram,
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        tasks=tuple(audits),
        effects=tuple(_effects(audits, stored, metric, warn)),
        scan=scanned,
        sources=tuple(files),
        evaluation=evaluation,
    )
    for task in audits:
        facts = {"training": audit.training, "created": audit.created, "rows": audit.rows}
        write_audit(results, {**facts, **asdict(task)})
    return audit


Neighbours = tuple[Task, str, float]
"""How to find similar texts: a task that decides how texts are formatted, an encoder, and the least
cosine."""


def _neighbours(
    evaluation: EvaluationTexts,
    texts: Iterable[tuple[str, int, Text]],
    neighbours: Neighbours,
    resources: Resources,
) -> Iterator[Hit]:
    """Yield training texts whose embedding is close to that of an evaluation text.

    `texts` come with file and row; texts under eight words are skipped. Both sides are encoded as
    documents without instructions, so that equal texts have a cosine of 1. Embeddings are cached,
    so an interrupted run encodes nothing twice.
    """
    task, encoder, threshold = neighbours
    stage = System.from_spec(encoder, resources).stage
    if not isinstance(stage, Retrieval) or not isinstance(stage.retriever, DenseRetriever):
        raise UsageError(f"--neighbours {encoder!r} is not an encoder; try minilm or wordllama.")
    entries = [n for n, text in enumerate(evaluation.texts) if len(words(text)) >= SHORTEST]
    encode, entry_vectors = stage.retriever.encode, None
    stream = (item for item in texts if len(words(item[2][1])) >= SHORTEST)
    while entries and (batch := list(islice(stream, _BATCH))):
        if entry_vectors is None:
            entry_texts = [evaluation.texts[entry] for entry in entries]
            entry_vectors = unit(encode(task, "document", entry_texts, instructed=False).matrix())
        near = [text for _, _, (_, text) in batch]
        cosines = unit(encode(task, "document", near, instructed=False).matrix()) @ entry_vectors.T
        for row, column in zip(*np.nonzero(cosines >= threshold), strict=True):
            cosine = {"cosine": round(float(cosines[row, column]), 4)}
            yield hit_of(*batch[int(row)], Match(0, entries[column], "neighbour", cosine))


def _warn_about_problems(scanned: Scan, warn: Warn) -> None:
    """Warn about rows and files that could not be read; raise DataError if no text was read."""
    for problem in scanned.failed.values():
        warn(f"{problem} The rest of the file is left out.")
    for name, reading in scanned.read.items():
        if reading.unreadable:
            count = f"{reading.unreadable:,} of {reading.rows:,} rows"
            warn(f"{name}: {count} cannot be read, e.g. {reading.problems[0]}")
        elif not reading.rows and name not in scanned.failed:
            warn(f"{name} is empty.")
        elif not reading.texts and reading.rows:
            warn(f"{name}: no text in it. Fields seen: {_list_fields(reading.fields)}.")
    if not any(reading.texts for reading in scanned.read.values()):
        fields = [name for reading in scanned.read.values() for name in reading.fields]
        raise DataError(
            f"No text was found in {', '.join(scanned.read)}.\n"
            f"Fields seen: {_list_fields(fields)}.\n"
            "Name the fields that hold text with --field."
        )


def _list_fields(fields: Iterable[str]) -> str:
    names = [f'"{name}"' for name in dict.fromkeys(fields)]
    return ", ".join(names[:_FIELDS_SHOWN]) or "none"


def _effects(
    audits: Sequence[TaskAudit], stored: Sequence[Result], metric: str, warn: Warn
) -> Iterable[Effect]:
    for audit in audits:
        same_data = [result for result in stored if result.data == audit.hash]
        for stored_system in group_systems(same_data, [audit.task]):
            system, result = stored_system.spec, stored_system.chosen.results[0]
            if metric not in result.scores.columns:
                continue
            column = result.scores[metric]
            chosen = np.isin(result.scores.query_ids.to_pylist(), audit.affected_queries)
            affected, unaffected = column[chosen], column[~chosen]
            difference = interval = None
            if len(affected) and len(unaffected):
                difference = float(affected.mean() - unaffected.mean())
                half = pooled_interval([affected, -unaffected], span=DIFFERENCES)
                low, high = max(2 * half.low, DIFFERENCES[0]), min(2 * half.high, DIFFERENCES[1])
                interval = Interval(low, high, half.confidence)
            yield Effect(
                task=audit.task,
                system=system,
                name=result.name,
                metric=metric,
                raw=float(column.mean()),
                decontaminated=float(unaffected.mean()) if len(unaffected) else None,
                affected=float(affected.mean()) if len(affected) else None,
                affected_queries=len(affected),
                unaffected_queries=len(unaffected),
                difference=difference,
                interval=interval,
            )


@dataclass(frozen=True)
class CleanCopy:
    """The number of rows of a training file that its clean copy leaves out or keeps."""

    file: str
    removed: int
    """Number of rows that contain evaluation texts."""
    unreadable: int
    """Number of rows that could not be read, and so could not be checked."""
    kept: int


def write_clean_copy(audit: Audit, out: Path, fields: Sequence[str] = ()) -> list[CleanCopy]:
    """Write every training file without the rows that contain evaluation texts.

    Rows that cannot be read are left out too. Rows with boilerplate excerpts, with neighbours, or
    equal to a text under five words are kept. Files of lines keep their format and every other
    byte; Parquet stays Parquet; a JSON array or an Arrow file becomes JSON lines.
    """
    if audit.scan.failed:
        names = ", ".join(audit.scan.failed)
        raise DataError(f"{names} could not be read to the end, so it cannot be cleaned.")
    hits_by_row: dict[str, dict[int, list[Hit]]] = {file.name: {} for file in audit.sources}
    for hit in audit.scan.hits:
        if _must_go(hit, audit.evaluation):
            hits_by_row[hit.file].setdefault(hit.row, []).append(hit)
    copies = []
    for file in audit.sources:
        reading, removed = audit.scan.read[file.name], len(hits_by_row[file.name])
        # An array becomes x.json.jsonl, because there may be an x.jsonl beside x.json.
        name = f"{file.name}.jsonl" if file.form in ("json", "arrow") else file.name
        target = out / name.lstrip("/").replace("..", "-")
        with atomic_file(target) as draft:
            _write_rows(file, hits_by_row[file.name], draft, target.suffix, fields)
        remaining = reading.rows - removed - reading.unreadable
        copies.append(CleanCopy(file.name, removed, reading.unreadable, remaining))
    with atomic_file(out / "removed.jsonl") as draft:
        write_jsonl(draft, _removal_reasons(audit, hits_by_row))
    return copies


def _must_go(hit: Hit, evaluation: EvaluationTexts) -> bool:
    """Return whether a row with this hit is left out of the clean copy."""
    if hit.kind == "neighbour":
        return False
    if hit.short:
        return len(words(evaluation.texts[hit.entry])) >= SHORTEST_CONTAINED
    return not hit.boilerplate or hit.kind in STRONG


def _removal_reasons(
    audit: Audit, hits_by_row: Mapping[str, Mapping[int, Sequence[Hit]]]
) -> Iterator[dict[str, Any]]:
    for file, rows_of_file in hits_by_row.items():
        for row, hits in rows_of_file.items():
            because = [
                {
                    "kind": hit.kind,
                    "column": hit.column,
                    "task": holder.task,
                    holder.role: holder.id,
                }
                for hit in hits
                for holder in audit.evaluation.holders[hit.entry]
            ]
            yield {"file": file, "row": row, "because": because}
        for row, _ in audit.scan.read[file].unreadable_rows:
            yield {"file": file, "row": row, "because": [{"kind": "unreadable"}]}


def _write_rows(
    file: TrainingFile, removed: Container[int], target: Path, suffix: str, fields: Sequence[str]
) -> None:
    """Write all readable rows except the removed ones; `suffix` decides the compression."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.form == "parquet":
        with pq.ParquetWriter(target, pq.read_schema(file.path)) as writer:
            for chunk in chunks(file):
                batch: Any = chunk.content
                mask = [chunk.first + index not in removed for index in range(len(batch))]
                writer.write_batch(batch.filter(mask))
        return
    compression = {".gz": "gzip", ".zst": "zstd"}.get(suffix)
    with pa.output_stream(str(target), compression) as out:
        for chunk in chunks(file):
            if isinstance(chunk.content, bytes):
                out.write(_remove_lines(chunk, chunk.content, removed, fields))
                continue
            for number, record in enumerate(chunk.records, start=chunk.first):
                if number not in removed:
                    text = json.dumps(record, ensure_ascii=False, default=str)
                    out.write(f"{text}\n".encode())


def _remove_lines(
    chunk: Chunk, content: bytes, removed: Container[int], fields: Sequence[str]
) -> bytes:
    """Return the lines of a chunk, except those of removed and unreadable rows."""
    reading = ReadingCounts()
    spans = [
        (row.number, row.lines) for row in rows(chunk, reading, fields) if row.number in removed
    ]
    lines = content.split(b"\n")
    for number, count in sorted([*spans, *reading.unreadable_rows], reverse=True):
        start = number - chunk.first
        del lines[start : start + count]
    return b"\n".join(lines)
