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

from r2med.atomic import read_sealed, write_sealed
from r2med.errors import DamagedError
from r2med.home import shelf
from r2med.tasks.reading.collection import read_task
from r2med.tasks.reading.lines import file_errors
from r2med.tasks.reading.source import Source
from r2med.tasks.task import Corpus, Judgements, Queries, Task

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


def read_or_copy(source: Source) -> Task:
    """The task as it was parsed before, else parsed and copied for the next time.

    The copy is written while the caller goes on; a process that ends first waits for it. A large
    task is written at once and mapped, so that its texts need not stay in memory.
    """
    copied = load_copy(source)
    if copied is not None:
        return copied
    with file_errors(source.folder):
        state = fingerprint(source)
    task = read_task(source)
    work = (source, task, state)
    if sum(size for _, size, *_ in state) < SMALLEST_BYTES:
        return task
    if task.corpus.texts.nbytes < LARGE_BYTES:
        threading.Thread(target=store_copy, args=work, name=THREAD).start()
        return task
    store_copy(*work)
    return load_copy(source) or task


def fingerprint(source: Source) -> Fingerprint:
    """What changes when a source file does: name, size, times and inode of each."""
    facts = [(file, file.stat()) for file in source.files]
    return [
        [str(file.absolute()), s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino]
        for file, s in facts
    ]


def load_copy(source: Source) -> Task | None:
    """The task as it was parsed before, or None if there is no sound copy of these files."""
    try:
        corpus, queries, judged = read_sealed(_place(source, fingerprint(source)))
    except (OSError, DamagedError):
        return None
    about = json.loads(corpus.schema.metadata[b"about"])
    return Task(
        source.folder.name,
        None,
        Corpus(corpus["ids"], corpus["texts"], known_hash=about["hash"]),
        Queries(*queries.columns),
        Judgements(judged["query_ids"], judged["document_ids"], judged["scores"].to_numpy()),
        source.folder,
        source.split,
        notices=tuple(about["notices"]),
    )


def store_copy(source: Source, task: Task, read_from: Fingerprint) -> None:
    """Write a copy of what was read from files in the state `read_from`, if that still holds."""
    corpus, judged = task.corpus, task.judgements
    about = {"hash": corpus.hash, "notices": task.notices}
    documents = pa.record_batch({"ids": corpus.ids, "texts": corpus.texts})
    batches = [
        documents.replace_schema_metadata({"about": json.dumps(about)}),
        pa.record_batch(vars(task.queries)),
        pa.record_batch({**vars(judged), "scores": pa.array(judged.scores.astype(np.int32))}),
    ]
    latest = max(max(modified, changed) for _, _, modified, changed, _ in read_from)
    with suppress(OSError):
        if time.time_ns() - latest <= SETTLED_NS or fingerprint(source) != read_from:
            return
        target = _place(source, read_from)
        write_sealed(target, batches)
        earlier, _, _ = target.name.partition("-")
        for other in target.parent.glob(f"{earlier}-*"):
            if other != target:
                other.unlink()


def _place(source: Source, state: Fingerprint) -> Path:
    """One name for a source, and one for the state its files are in."""
    task = f"{source.folder.absolute()}#{source.layout}#{source.split}"
    names = (
        hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
        for value in (task, [FORMAT, state])
    )
    return shelf("arrow") / f"{'-'.join(names)}.arrow"
