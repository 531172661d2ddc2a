"""Columnar copies of task files, mapped into memory on later loads instead of being parsed again.

A copy is a folder of Arrow files and `copy.json`, which is written with them and says what they
were made from. It is used only while every source file is untouched. Losing a copy costs time,
never data, so anything wrong with one, or with writing one, is silently made good by parsing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from r2med.atomic import atomic_folder
from r2med.home import shelf
from r2med.tasks.reading.collection import Collection
from r2med.tasks.reading.findings import Findings
from r2med.tasks.reading.source import Source
from r2med.tasks.task import Corpus, Judgements, Queries

FORMAT = 1
#: Smaller tasks are parsed faster than a copy is opened.
SMALLEST_BYTES = 1 << 18
#: A file changed this recently could change again under the same time stamp.
SETTLED_NS = 100_000_000

_under_way: list[threading.Thread] = []

Fingerprint = list[list[Any]]


def fingerprint(source: Source) -> Fingerprint:
    """What changes when a source file does: name, size, times and inode of each."""
    facts = [(file, file.stat()) for file in source.files]
    return [
        [str(file.absolute()), s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino]
        for file, s in facts
    ]


def load_copy(source: Source) -> Collection | None:
    """The collection as it was parsed before, or None if there is no sound copy of these files."""
    try:
        state = fingerprint(source)
        folder = _folder(source, state)
        record = json.loads((folder / "copy.json").read_text(encoding="utf-8"))
        if record["format"] != FORMAT or record["source"] != state:
            return None
        parts = {name: _mapped(folder / name, size) for name, size in record["bytes"].items()}
        return _collection(parts, record)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None


def store_copy(source: Source, collection: Collection, read_from: Fingerprint) -> None:
    """Write a copy of what was read from files in the state `read_from`, if that still holds."""
    with suppress(OSError, pa.ArrowException):
        if _worth_copying(source, read_from):
            folder = _folder(source, read_from)
            with atomic_folder(folder) as draft:
                _write(draft, collection, read_from)
            _drop_outdated(folder)


def store_in_background(source: Source, collection: Collection, read_from: Fingerprint) -> None:
    """Write the copy while the caller goes on; a process that ends first waits for it."""
    if _total_bytes(read_from) < SMALLEST_BYTES:
        return
    _under_way[:] = [thread for thread in _under_way if thread.is_alive()]
    thread = threading.Thread(target=store_copy, args=(source, collection, read_from))
    _under_way.append(thread)
    thread.start()


def finish_copies() -> None:
    """Wait until every copy under way is written."""
    while _under_way:
        _under_way.pop().join()


def _worth_copying(source: Source, read_from: Fingerprint) -> bool:
    latest = max(max(modified, changed) for _, _, modified, changed, _ in read_from)
    return (
        _total_bytes(read_from) >= SMALLEST_BYTES
        and time.time_ns() - latest > SETTLED_NS
        and fingerprint(source) == read_from
    )


def _total_bytes(state: Fingerprint) -> int:
    return sum(int(size) for _, size, *_ in state)


def _folder(source: Source, state: Fingerprint) -> Path:
    """One name for a source, and one for the state its files are in."""
    place = f"{source.folder.absolute()}#{source.layout}#{source.split}"
    return shelf("arrow") / f"{_digest(place)}-{_digest([FORMAT, state])}"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _drop_outdated(folder: Path) -> None:
    """Remove copies of earlier states of the same source, and of sources that are gone."""
    place = folder.name.partition("-")[0]
    for other in folder.parent.glob("*-*"):
        if other != folder and (other.name.startswith(f"{place}-") or _is_orphan(other)):
            shutil.rmtree(other, ignore_errors=True)


def _is_orphan(folder: Path) -> bool:
    try:
        record = json.loads((folder / "copy.json").read_text(encoding="utf-8"))
        return not Path(record["source"][0][0]).exists()
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return False


def _write(folder: Path, collection: Collection, read_from: Fingerprint) -> None:
    for name, batch in _batches(collection).items():
        with (
            pa.OSFile(str(folder / name), "wb") as sink,
            pa.ipc.new_file(sink, batch.schema) as out,
        ):
            out.write_batch(batch)
    record = {
        "format": FORMAT,
        "source": read_from,
        "bytes": {file.name: file.stat().st_size for file in folder.iterdir()},
        "corpus_hash": collection.corpus.hash,
        "statistics": collection.statistics,
        "findings": asdict(collection.findings),
    }
    (folder / "copy.json").write_text(json.dumps(record), encoding="utf-8")


def _batches(collection: Collection) -> dict[str, pa.RecordBatch]:
    corpus, queries, judged = collection.corpus, collection.queries, collection.judgements
    return {
        "corpus.arrow": _batch(id=corpus.ids, text=corpus.texts),
        "queries.arrow": _batch(
            id=queries.ids,
            text=queries.texts,
            answer=queries.answers,
            body_system=queries.body_systems,
            reasoning=queries.reasonings,
        ),
        "judgements.arrow": _batch(
            query=judged.query_ids,
            document=judged.document_ids,
            score=pa.array(judged.scores, pa.int32()),
        ),
    }


def _batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _mapped(file: Path, size: int) -> pa.RecordBatch:
    if file.stat().st_size != size:
        raise ValueError(f"{file} is cut off")
    with pa.memory_map(str(file)) as mapped:
        batch = pa.ipc.open_file(mapped).get_batch(0)
    batch.validate()
    return batch


def _collection(parts: dict[str, pa.RecordBatch], record: dict[str, Any]) -> Collection:
    corpus, queries = parts["corpus.arrow"], parts["queries.arrow"]
    judged = parts["judgements.arrow"]
    scores = judged["score"].to_numpy()
    return Collection(
        corpus=Corpus(corpus["id"], corpus["text"], known_hash=str(record["corpus_hash"])),
        queries=Queries(
            ids=queries["id"],
            texts=queries["text"],
            answers=queries["answer"],
            body_systems=queries["body_system"],
            reasonings=queries["reasoning"],
        ),
        judgements=Judgements(judged["query"], judged["document"], scores.astype(np.int32)),
        findings=Findings(**record["findings"]),
        known_statistics=record["statistics"],
    )
