"""Columnar copies of task files, mapped into memory on later loads instead of being parsed again.

A copy is one file: three Arrow streams, what they were made from, and a checksum of it all. It is
used only while every source file is untouched and its own bytes are as written. Losing a copy
costs time, never data, so anything wrong with one, or with writing one, is made good by parsing.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from r2med.atomic import atomic_file, read_sealed, seal_file
from r2med.errors import DamagedError
from r2med.home import shelf
from r2med.tasks.reading.collection import Collection
from r2med.tasks.reading.source import Source
from r2med.tasks.task import Corpus, Judgements, Queries

FORMAT = 4
#: Smaller tasks are parsed faster than a copy is opened.
SMALLEST_BYTES = 1 << 18
#: Texts of more bytes are mapped from their copy even by the process that parsed them.
LARGE_BYTES = 1 << 28
#: The name of threads that write copies.
THREAD = "r2med arrow copy"
#: A file changed this recently could change again under the same time stamp.
SETTLED_NS = 100_000_000

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
        place = _place(source, fingerprint(source))
        body = pa.BufferReader(pa.py_buffer(read_sealed(place)))
    except (OSError, DamagedError):
        return None
    corpus, queries, judged = (
        pa.ipc.open_stream(body).read_all().to_batches()[0] for _ in range(3)
    )
    about = json.loads(corpus.schema.metadata[b"about"])
    return Collection(
        Corpus(corpus["ids"], corpus["texts"], known_hash=about["hash"]),
        Queries(*queries.columns),
        Judgements(judged["query_ids"], judged["document_ids"], judged["scores"].to_numpy()),
        tuple(about["notices"]),
        tuple(about["strays"]),
    )


def keep_copy(source: Source, collection: Collection, read_from: Fingerprint) -> Collection:
    """Write the copy while the caller goes on; a process that ends first waits for it.

    A large collection is written at once and mapped, so that its texts need not stay in memory.
    """
    if sum(size for _, size, *_ in read_from) < SMALLEST_BYTES:
        return collection
    work = (source, collection, read_from)
    if collection.corpus.texts.nbytes < LARGE_BYTES:
        threading.Thread(target=store_copy, args=work, name=THREAD).start()
        return collection
    store_copy(*work)
    return load_copy(source) or collection


def store_copy(source: Source, collection: Collection, read_from: Fingerprint) -> None:
    """Write a copy of what was read from files in the state `read_from`, if that still holds."""
    with suppress(OSError):
        if not _is_settled(source, read_from):
            return
        target = _place(source, read_from)
        with atomic_file(target) as draft:
            with pa.OSFile(str(draft), "wb") as sink:
                for batch in _batches(collection):
                    with pa.ipc.new_stream(sink, batch.schema) as out:
                        out.write_batch(batch)
            seal_file(draft)
        earlier, _, _ = target.name.partition("-")
        for other in target.parent.glob(f"{earlier}-*"):
            if other != target:
                other.unlink()


def _is_settled(source: Source, read_from: Fingerprint) -> bool:
    latest = max(max(modified, changed) for _, _, modified, changed, _ in read_from)
    return time.time_ns() - latest > SETTLED_NS and fingerprint(source) == read_from


def _place(source: Source, state: Fingerprint) -> Path:
    """One name for a source, and one for the state its files are in."""
    task = f"{source.folder.absolute()}#{source.layout}#{source.split}"
    return shelf("arrow") / f"{_digest(task)}-{_digest([FORMAT, state])}.arrow"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def _batches(collection: Collection) -> list[pa.RecordBatch]:
    corpus, judged = collection.corpus, collection.judgements
    about = {"hash": corpus.hash, "notices": collection.notices, "strays": collection.strays}
    documents = pa.record_batch({"ids": corpus.ids, "texts": corpus.texts})
    return [
        documents.replace_schema_metadata({"about": json.dumps(about)}),
        pa.record_batch(vars(collection.queries)),
        pa.record_batch({**vars(judged), "scores": pa.array(judged.scores.astype(np.int32))}),
    ]
