"""Columnar copies of task files, mapped into memory on later loads instead of being parsed again.

A copy is one file with three Arrow streams and a checksum. It is used only if the checksum matches
and the source files are unchanged. After any problem with reading or writing a copy, the source
files are parsed.
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

from r2med.errors import DamagedError
from r2med.paths import cache_folder
from r2med.storage import read_sealed, release_memory, write_sealed
from r2med.tasks.reading.collection import read_task
from r2med.tasks.reading.lines import file_errors
from r2med.tasks.reading.source import TaskFiles
from r2med.tasks.reading.text_column import LARGE_BYTES
from r2med.tasks.task import Corpus, Judgements, Queries, StoredHash, Task

FORMAT = 5
#: Smaller tasks are parsed faster than a copy is opened.
SMALLEST_BYTES = 1 << 18
#: The name of threads that write copies.
THREAD = "r2med arrow copy"
#: A file changed this recently could change again under the same time stamp.
SETTLED_NS = 100_000_000

Fingerprint = list[list[Any]]


def read_or_copy(source: TaskFiles) -> Task:
    """Load the copy of a task, or parse the task and store a copy for the next time.

    The copy is written in a thread, for which the process waits before it ends. The copy of a large
    task is written at once and mapped, so that the texts need not stay in memory.
    """
    copied = load_copy(source)
    if copied is not None:
        return copied
    with file_errors(source.folder):
        state = fingerprint(source)
    task = read_task(source)
    if sum(size for _, size, *_ in state) < SMALLEST_BYTES:
        return task
    release_memory()  # the parser's
    if task.corpus.texts.nbytes < LARGE_BYTES:
        threading.Thread(target=store_copy, args=(source, task, state), name=THREAD).start()
        return task
    store_copy(source, task, state)
    return load_copy(source) or task


def fingerprint(source: TaskFiles) -> Fingerprint:
    """Return name, size, times and inode of each source file, to notice a file that changes."""
    states: Fingerprint = []
    for file in source.files:
        status = file.stat()
        times = [status.st_mtime_ns, status.st_ctime_ns]
        states.append([str(file.absolute()), status.st_size, *times, status.st_ino])
    return states


def load_copy(source: TaskFiles) -> Task | None:
    """Load the copy of a task; None if these files have no valid copy."""
    try:
        corpus, queries, judged = read_sealed(_copy_path(source, fingerprint(source)))
    except (OSError, DamagedError):
        return None
    about = json.loads(corpus.schema.metadata[b"about"])
    ids, texts = corpus["ids"], corpus["texts"]
    return Task(
        source.folder.name,
        None,
        Corpus(ids, texts, StoredHash(about["hash"], ids, texts)),
        Queries(*queries.columns),
        Judgements(judged["query_ids"], judged["document_ids"], judged["scores"].to_numpy()),
        source.folder,
        source.split,
        notices=tuple(about["notices"]),
    )


def store_copy(source: TaskFiles, task: Task, read_from: Fingerprint) -> None:
    """Write a copy of a task, unless its files have changed since they were read.

    `read_from` is the fingerprint of the files at that time. Nothing is written either if the files
    changed just before, or if an OSError occurs.
    """
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
        target = _copy_path(source, read_from)
        write_sealed(target, batches)
        source_name, _, _ = target.name.partition("-")
        for path in target.parent.glob(f"{source_name}-*"):
            if path != target:
                path.unlink()


def _copy_path(source: TaskFiles, state: Fingerprint) -> Path:
    """Return the path of a copy: a hash for the task, and a hash for the state of its files."""
    task = f"{source.folder.absolute()}#{source.layout}#{source.split}"
    names = (
        hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
        for value in (task, [FORMAT, state])
    )
    return cache_folder("arrow") / f"{'-'.join(names)}.arrow"
