"""Training data without the rows that hold evaluation texts; the input is never touched.

Files of lines keep their form and every other byte; Parquet stays Parquet. A JSON array or an
Arrow file comes out as JSON lines.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from r2med.atomic import atomic_file
from r2med.audit.evaluation import Evaluation
from r2med.audit.files import TrainingFile, pieces
from r2med.audit.reading import Reading, rows
from r2med.audit.scanning import Hit, Scan
from r2med.errors import DataError

REMOVED = "removed.jsonl"


def write_clean(
    files: Sequence[TrainingFile],
    found: Scan,
    wanted: Evaluation,
    out: Path,
    *,
    fields: Sequence[str] = (),
) -> dict[str, tuple[int, int]]:
    """Write every file without its offending rows into an empty folder.

    Returns the rows removed and kept, by file. Rows of boilerplate, of short texts and of
    neighbours stay.
    """
    if found.failed:
        raise DataError(
            f"{', '.join(found.failed)} could not be read to the end, so it cannot be cleaned."
        )
    offending: dict[str, dict[int, list[Hit]]] = {file.name: {} for file in files}
    for hit in found.hits:
        if hit.kind != "neighbour" and not hit.boilerplate and not hit.short:
            offending[hit.file].setdefault(hit.row, []).append(hit)
    counts = {}
    for file in files:
        removed = offending[file.name]
        target = out / _safe(file)
        if file.form == "parquet":
            _clean_parquet(file, set(removed), target)
        else:
            _clean_records(file, set(removed), target, fields)
        counts[file.name] = len(removed), found.read[file.name].rows - len(removed)
    with atomic_file(out / REMOVED) as draft, draft.open("w", encoding="utf-8") as log:
        for own in offending.values():
            for hits in own.values():
                log.write(json.dumps(_reason(hits, wanted), ensure_ascii=False) + "\n")
    return counts


def _reason(hits: Sequence[Hit], wanted: Evaluation) -> dict[str, Any]:
    because = [
        {"kind": hit.kind, "column": hit.column, "task": place.task, place.role: place.id}
        for hit in hits
        for place in wanted.places[hit.entry]
    ]
    return {"file": hits[0].file, "row": hits[0].row, "because": because}


def _safe(file: TrainingFile) -> str:
    name = file.name.lstrip("/").replace("..", "-")
    if file.form in ("json", "arrow"):
        name = f"{name.removesuffix('.gz').removesuffix('.zst')}l"
    return name.replace(".arrowl", ".jsonl")


def _clean_records(
    file: TrainingFile, removed: set[int], target: Path, fields: Sequence[str]
) -> None:
    with atomic_file(target) as draft, _opened(draft, target.name) as out:
        for piece in pieces(file):
            if isinstance(piece.content, bytes):
                kept = piece.content.split(b"\n")
                gone = [row for row in rows(piece, Reading(), fields) if row.number in removed]
                for row in reversed(gone):
                    start = row.number - piece.first
                    del kept[start : start + row.lines]
                out.write(b"\n".join(kept))
            elif isinstance(piece.content, list):
                for number, record in enumerate(piece.content, start=piece.first):
                    if number not in removed:
                        out.write(
                            (json.dumps(record, ensure_ascii=False, default=str) + "\n").encode()
                        )


def _clean_parquet(file: TrainingFile, removed: set[int], target: Path) -> None:
    import pyarrow.parquet as pq

    with atomic_file(target) as draft, pq.ParquetFile(file.path) as source:
        number = 1
        with pq.ParquetWriter(draft, source.schema_arrow) as writer:
            for batch in source.iter_batches():
                mask = [number + place not in removed for place in range(len(batch))]
                number += len(batch)
                writer.write_batch(batch.filter(mask))


@contextmanager
def _opened(path: Path, name: str) -> Iterator[IO[bytes]]:
    import pyarrow as pa

    if name.endswith(".gz"):
        with gzip.open(path, "wb") as packed:
            yield packed  # type: ignore[misc]
    elif name.endswith(".zst"):
        with pa.CompressedOutputStream(str(path), "zstd") as packed:
            yield packed
    else:
        with path.open("wb") as plain:
            yield plain
