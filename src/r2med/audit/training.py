"""The audit of a training set: scan it, judge every task, say what it means for stored scores.

The same data can be written without the rows that hold evaluation texts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from r2med.atomic import atomic_file
from r2med.audit.evaluation import Evaluation, Matcher, Role
from r2med.audit.files import TrainingFile, chunks, training_files
from r2med.audit.findings import Finding, TaskAudit, task_audits
from r2med.audit.matching import SHORTEST, Match, words
from r2med.audit.reading import Reading, Text, rows
from r2med.audit.scanning import Evidence, Hit, Scan, hit_of, readable_chunks, scan
from r2med.errors import DataError, UsageError
from r2med.measure.intervals import DIFFERENCES, Interval, pooled_interval
from r2med.results.lookup import newest_by_system, stored_results
from r2med.results.overlap import AUDITS as FOLDER
from r2med.results.overlap import write_audit
from r2med.results.record import Result
from r2med.retrieve.conditions import Conditions, Progress, Tell
from r2med.retrieve.dense.embed import unit
from r2med.retrieve.dense.retriever import DenseRetriever
from r2med.systems.build import System
from r2med.systems.stages import Retrieval
from r2med.tabular import Tabular, fields_of, table_of
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
    """A stored score with and without the queries that the training set touches."""

    task: str
    system: str
    name: str
    """The system's label where it has one."""
    metric: str
    raw: float
    decontaminated: float | None
    """Over the unaffected queries alone; None where there are none."""
    affected: float | None
    affected_queries: int
    unaffected_queries: int
    difference: float | None
    """Affected minus unaffected, with its interval."""
    interval: Interval | None


@dataclass(frozen=True)
class Audit(Tabular):
    """The outcome of one audit; as a table, one row per finding."""

    drawn_by = "r2med.report.audit"

    training: str
    against: tuple[Role, ...]
    ngram: int
    created: str
    tasks: tuple[TaskAudit, ...]
    effects: tuple[Effect, ...]
    scan: Scan
    sources: tuple[TrainingFile, ...]
    evaluation: Evaluation

    @property
    def rows(self) -> int:
        """Training rows looked at."""
        return sum(reading.rows for reading in self.scan.read.values())

    def to_arrow(self) -> pa.Table:
        """One row per finding that counts, with its first evidence."""
        columns = {"task": str, **fields_of(Finding), **fields_of(Evidence), "training_text": str}
        rows = [
            {"task": task.task, **vars(first), **first.measures, **vars(finding)}
            | {"training_text": first.text}
            for task in self.tasks
            for finding in task.findings
            for first in finding.evidence[:1]
        ]
        return table_of({**columns, **dict.fromkeys(_MEASURES, float)}, rows)

    def to_json(self) -> dict[str, Any]:
        """All but the single hits."""
        whole = {name: getattr(self, name) for name in ("training", "against", "ngram", "created")}
        return {
            **whole,
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
    tell: Tell,
) -> Audit:
    """Say of every task whether its texts are in the training data, and store the outcomes.

    `neighbours` also looks for texts of similar meaning. The scores of stored results are split by
    affected and unaffected queries. The scan is logged under `results`, so that it goes on where it
    was killed; `force` begins anew.
    """
    stored = stored_results(results, tell)
    files = training_files(training)
    wanted = matcher.evaluation
    log = results / FOLDER / "progress"
    try:
        scanned = scan(
            files, matcher, log, fields=fields, strict=strict, fresh=force, progress=progress
        )
        _tell_problems(scanned, tell)
        if neighbours is not None:
            texts = (
                (chunk.file.name, row.number, text)
                for chunk in readable_chunks(files, {})
                for row in rows(chunk, Reading(), fields)
                for text in row.texts
            )
            known = {(hit.file, hit.row, hit.entry) for hit in scanned.hits}
            hits = _neighbours(wanted, texts, neighbours, Conditions(progress=progress, tell=tell))
            scanned.hits.extend(hit for hit in hits if (hit.file, hit.row, hit.entry) not in known)
    except KeyboardInterrupt as stop:
        stop.add_note(
            f"What was looked through is kept in {results}; run the same command again to go on."
        )
        raise
    audits = task_audits(wanted, scanned)
    audit = Audit(
        training=name or Path(training[0]).resolve().name,
        against=tuple(dict.fromkeys(role for _, role in wanted.audited)),
        ngram=matcher.ngram,
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        tasks=tuple(audits),
        effects=tuple(_effects(audits, stored, metric, tell)),
        scan=scanned,
        sources=tuple(files),
        evaluation=wanted,
    )
    for task in audits:
        own = {"training": audit.training, "created": audit.created, "rows": audit.rows}
        write_audit(results, {**own, **asdict(task)})
    return audit


Neighbours = tuple[Task, str, float]
"""An encoder, the cosine from which texts mean the same, and a task that says how texts are put to
the encoder, which comes first."""


def _neighbours(
    wanted: Evaluation,
    texts: Iterable[tuple[str, int, Text]],
    neighbours: Neighbours,
    conditions: Conditions,
) -> Iterator[Hit]:
    """Training texts that mean the same as an evaluation text in other words, for an encoder.

    `texts` come with file and row; those under eight words say nothing. Both sides are encoded as
    documents without instructions, so that equal texts have a cosine of 1. Vectors are kept, so an
    interrupted run encodes nothing twice.
    """
    task, encoder, threshold = neighbours
    stage = System.from_spec(encoder, conditions).stage
    if not isinstance(stage, Retrieval) or not isinstance(stage.retriever, DenseRetriever):
        raise UsageError(f"--neighbours {encoder!r} is not an encoder; try minilm or wordllama.")
    entries = [n for n, text in enumerate(wanted.texts) if len(words(text)) >= SHORTEST]
    encode, own = stage.retriever.encode, None
    stream = (each for each in texts if len(words(each[2][1])) >= SHORTEST)
    while entries and (batch := list(islice(stream, _BATCH))):
        if own is None:
            asked = [wanted.texts[entry] for entry in entries]
            own = unit(encode(task, "document", asked, instructed=False).matrix())
        near = [text for _, _, (_, text) in batch]
        cosines = unit(encode(task, "document", near, instructed=False).matrix()) @ own.T
        for place, column in zip(*np.nonzero(cosines >= threshold), strict=True):
            cosine = {"cosine": round(float(cosines[place, column]), 4)}
            yield hit_of(*batch[int(place)], Match(0, entries[column], "neighbour", cosine))


def _tell_problems(scanned: Scan, tell: Tell) -> None:
    """Name what could not be read; DataError where there was no text at all."""
    for problem in scanned.failed.values():
        tell(f"{problem} The rest of the file is left out.")
    for name, reading in scanned.read.items():
        if reading.unreadable:
            count = f"{reading.unreadable:,} of {reading.rows:,} rows"
            tell(f"{name}: {count} cannot be read, e.g. {reading.problems[0]}")
        elif not reading.rows and name not in scanned.failed:
            tell(f"{name} is empty.")
        elif not reading.texts and reading.rows:
            tell(f"{name}: no text in it. Fields seen: {_listed(reading.fields)}.")
    if not any(reading.texts for reading in scanned.read.values()):
        fields = [name for reading in scanned.read.values() for name in reading.fields]
        raise DataError(
            f"No text was found in {', '.join(scanned.read)}. Fields seen: {_listed(fields)}.\n"
            "Name the fields that hold text with --field."
        )


def _listed(fields: Iterable[str]) -> str:
    names = [f'"{name}"' for name in dict.fromkeys(fields)]
    return ", ".join(names[:_FIELDS_SHOWN]) or "none"


def _effects(
    audits: Sequence[TaskAudit], stored: Sequence[Result], metric: str, tell: Tell
) -> Iterable[Effect]:
    for audit in audits:
        own = [result for result in stored if result.record.task.hash == audit.hash]
        for system, result in newest_by_system(own, tell).items():
            if metric not in result.scores.columns:
                continue
            column = result.scores[metric]
            chosen = np.isin(result.scores.query_ids.to_pylist(), audit.affected_queries)
            affected, rest = column[chosen], column[~chosen]
            difference = interval = None
            if len(affected) and len(rest):
                difference = float(affected.mean() - rest.mean())
                half = pooled_interval([affected, -rest], span=DIFFERENCES)
                low, high = max(2 * half.low, DIFFERENCES[0]), min(2 * half.high, DIFFERENCES[1])
                interval = Interval(low, high, half.confidence)
            yield Effect(
                task=audit.task,
                system=system,
                name=result.name,
                metric=metric,
                raw=float(column.mean()),
                decontaminated=float(rest.mean()) if len(rest) else None,
                affected=float(affected.mean()) if len(affected) else None,
                affected_queries=len(affected),
                unaffected_queries=len(rest),
                difference=difference,
                interval=interval,
            )


def write_without(
    audit: Audit, out: Path, fields: Sequence[str] = ()
) -> dict[str, tuple[int, int]]:
    """Write every training file without its offending rows into an empty folder.

    The input is never touched. Files of lines keep their form and every other byte; Parquet stays
    Parquet, a JSON array or an Arrow file becomes JSON lines. Returns the rows removed and kept,
    by file. Rows of boilerplate, of short texts and of neighbours stay.
    """
    if audit.scan.failed:
        names = ", ".join(audit.scan.failed)
        raise DataError(f"{names} could not be read to the end, so it cannot be cleaned.")
    offending: dict[str, dict[int, list[Hit]]] = {file.name: {} for file in audit.sources}
    for hit in audit.scan.hits:
        if hit.kind != "neighbour" and not hit.boilerplate and not hit.short:
            offending[hit.file].setdefault(hit.row, []).append(hit)
    counts = {}
    for file in audit.sources:
        removed = len(offending[file.name])
        # An array becomes x.json.jsonl: x.jsonl may stand beside x.json.
        name = f"{file.name}.jsonl" if file.form in ("json", "arrow") else file.name
        target = out / name.lstrip("/").replace("..", "-")
        with atomic_file(target) as draft:
            _write_kept(file, offending[file.name], draft, target.suffix, fields)
        counts[file.name] = removed, audit.scan.read[file.name].rows - removed
    reasons = (
        {
            "file": file,
            "row": row,
            "because": [
                {"kind": hit.kind, "column": hit.column, "task": place.task, place.role: place.id}
                for hit in hits
                for place in audit.evaluation.holders[hit.entry]
            ],
        }
        for file, own in offending.items()
        for row, hits in own.items()
    )
    with atomic_file(out / "removed.jsonl") as draft:
        write_jsonl(draft, reasons)
    return counts


def _write_kept(
    file: TrainingFile, removed: Container[int], target: Path, ending: str, fields: Sequence[str]
) -> None:
    """Write all rows but the removed ones; `ending` says whether they are packed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.form == "parquet":
        with pq.ParquetWriter(target, pq.read_schema(file.path)) as writer:
            for chunk in chunks(file):
                batch: Any = chunk.content
                kept = [chunk.first + place not in removed for place in range(len(batch))]
                writer.write_batch(batch.filter(kept))
        return
    packing = {".gz": "gzip", ".zst": "zstd"}.get(ending)
    with pa.output_stream(str(target), packing) as out:
        for chunk in chunks(file):
            if isinstance(chunk.content, bytes):
                lines = chunk.content.split(b"\n")
                gone = [row for row in rows(chunk, Reading(), fields) if row.number in removed]
                for row in reversed(gone):
                    start = row.number - chunk.first
                    del lines[start : start + row.lines]
                out.write(b"\n".join(lines))
                continue
            for number, record in enumerate(chunk.records, start=chunk.first):
                if number not in removed:
                    text = json.dumps(record, ensure_ascii=False, default=str)
                    out.write(f"{text}\n".encode())
