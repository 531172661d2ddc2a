"""Compare training data with evaluation texts, chunk by chunk, on all cores.

Each finished chunk is appended to a log beside the results. A scan that was interrupted continues
with the chunks that are not in the log. Other files, settings or evaluation texts have another log.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from r2med.audit.evaluation import Matcher
from r2med.audit.files import Chunk, TrainingFile, chunks
from r2med.audit.matching import SHORTEST, WORDS, Match, words
from r2med.audit.reading import ReadingCounts, Row, Text, rows
from r2med.errors import DamagedError, DataError
from r2med.execution.resources import Progress, ignore_progress
from r2med.storage import AppendFile, seal, unseal

#: Below this many bytes in all, starting processes costs more than it saves.
_WORTH_PROCESSES = 1 << 25
_TEXTS = 2000
#: Training texts that are kept for each evaluation text and kind.
EVIDENCE = 3
#: Characters of a training text that are kept, and words before the shared ones.
_SHOWN, _BEFORE = 2000, 5
#: Chunks that are held at a time, for each process.
_GROUP = 4
#: Raise when the same chunks would give other hits.
_VERSION = 6

_Work = Callable[[Chunk], dict[str, Any]]


@dataclass(frozen=True)
class Evidence:
    """A training text that matches, with its file, row and column."""

    file: str
    row: int
    column: str
    text: str
    """The training text from shortly before the match, shortened; empty if enough others are
    stored."""
    measures: Mapping[str, float]


@dataclass(frozen=True)
class Hit(Evidence):
    """A text of a training row that matches an evaluation text."""

    entry: int
    """The index of the evaluation text."""
    kind: str
    boilerplate: bool = False
    short: bool = False
    """Whether the evaluation text is too short to be evidence of a leak."""


@dataclass(frozen=True)
class Scan:
    """All hits, in the order of the files, and counts for each file."""

    hits: list[Hit]
    read: dict[str, ReadingCounts]
    failed: dict[str, str]
    """Files that could not be read to their end, with the reasons."""


def scan(
    files: Sequence[TrainingFile],
    matcher: Matcher,
    log: Path,
    *,
    fields: Sequence[str] = (),
    processes: int | None = None,
    strict: bool = False,
    fresh: bool = False,
    progress: Progress = ignore_progress,
) -> Scan:
    """Scan all files; chunks that an earlier scan finished are read from `log`.

    If `strict`, the first row or file that cannot be read raises an error.
    """
    scanned = Scan([], {file.name: ReadingCounts() for file in files}, {})
    sizes = {file.name: max(file.path.stat().st_size, 1) for file in files}
    if processes is None:
        processes = os.cpu_count() or 1 if sum(sizes.values()) > _WORTH_PROCESSES else 1
    log /= _key(files, matcher, fields)
    outcomes_by_chunk = {} if fresh else _read_log(log)
    log_file = AppendFile(log, ".jsonl", content="progress of the audit")
    todo = readable_chunks(files, scanned.failed, strict=strict)
    shares, started = dict.fromkeys(sizes, 0.0), time.monotonic()
    texts: Counter[tuple[int, str]] = Counter()
    with (
        closing(log_file),
        _workers(partial(_outcome, matcher, tuple(fields)), processes) as outcomes,
    ):
        while group := list(islice(todo, _GROUP * processes)):
            new = [chunk for chunk in group if chunk.key not in outcomes_by_chunk]
            for chunk, outcome in zip(new, outcomes(new), strict=True):
                log_file.append(
                    seal({"chunk": chunk.key, "outcome": outcome}, indent=None).encode()
                )
                outcomes_by_chunk[chunk.key] = outcome
            for chunk in group:
                outcome, name = outcomes_by_chunk.pop(chunk.key), chunk.file.name
                reading = ReadingCounts(**outcome["reading"])
                if strict and reading.problems:
                    raise DataError(f"{reading.problems[0]}\nWithout --strict it is only counted.")
                scanned.read[name].add(reading)
                scanned.hits.extend(_few_texts((Hit(**hit) for hit in outcome["hits"]), texts))
                shares[name] = chunk.done
                done = sum(shares[file_name] * size for file_name, size in sizes.items())
                megabytes = round(done / 1e6), round(sum(sizes.values()) / 1e6)
                progress(f"MB of {name}", *megabytes, time.monotonic() - started)
    order = {file.name: index for index, file in enumerate(files)}
    scanned.hits.sort(key=lambda hit: (order[hit.file], hit.row, hit.column, hit.entry))
    return scanned


def _outcome(matcher: Matcher, fields: Sequence[str], chunk: Chunk) -> dict[str, Any]:
    """Return the hits and counts of a chunk as JSON values."""
    reading = ReadingCounts()
    hits: list[Hit] = []
    texts: Counter[tuple[int, str]] = Counter()
    stream = rows(chunk, reading, fields)
    while batch := list(islice(stream, _TEXTS)):
        hits += _few_texts(_hits(matcher, chunk.file.name, batch), texts)
    return {"reading": asdict(reading), "hits": [asdict(hit) for hit in hits]}


def _hits(matcher: Matcher, file: str, batch: Sequence[Row]) -> Iterator[Hit]:
    distinct = list(dict.fromkeys(text for row in batch for _, text in row.texts))
    by_text: dict[str, list[Match]] = {}
    for match in matcher.matches(distinct):
        by_text.setdefault(distinct[match.text], []).append(match)
    for row in batch:
        matched = set()
        for text in row.texts:
            for match in by_text.get(text[1], ()):
                matched.add(match.entry)
                yield hit_of(file, row.number, text, match)
        same_source = matcher.evaluation.find_same_source(row.marks) if row.marks else []
        for entry in same_source:
            if entry not in matched:
                yield hit_of(file, row.number, row.texts[0], Match(0, entry, "same source"))


def _few_texts(hits: Iterable[Hit], counts: Counter[tuple[int, str]]) -> Iterator[Hit]:
    """Yield all hits, but drop the text of all but the first few of each text and type of match.

    This limits memory if most training rows are leaks.
    """
    for hit in hits:
        counts[hit.entry, hit.kind] += 1
        yield hit if counts[hit.entry, hit.kind] <= EVIDENCE else replace(hit, text="")


def readable_chunks(
    files: Iterable[TrainingFile], failed: dict[str, str], *, strict: bool = False
) -> Iterator[Chunk]:
    """Yield the chunks of all files; files that cannot be read to their end go to `failed`."""
    for file in files:
        try:
            yield from chunks(file)
        except DataError as problem:
            if strict:
                raise
            failed[file.name] = str(problem)


def _read_log(log: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the outcomes of chunks that an earlier scan finished."""
    outcomes_by_chunk = {}
    for path in sorted(log.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            with suppress(DamagedError):  # half a line of a killed process; the chunk is done again
                record = unseal(line, path)
                outcomes_by_chunk[tuple(record["chunk"])] = record["outcome"]
    return outcomes_by_chunk


@contextmanager
def _workers(
    work: _Work, processes: int
) -> Iterator[Callable[[Sequence[Chunk]], Iterable[dict[str, Any]]]]:
    """Yield a function that scans chunks, in one process or several; outcomes are in order."""
    if processes == 1:
        yield partial(map, work)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(work,))
    try:
        yield partial(pool.map, _ask)
    finally:
        pool.shutdown(cancel_futures=True)


_work: _Work | None = None


def _begin(work: _Work) -> None:
    """Set up a worker process: it ignores Ctrl-C and ends with its parent."""
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def end_with_parent() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _ask(chunk: Chunk) -> dict[str, Any]:
    assert _work is not None
    return _work(chunk)


def _key(files: Sequence[TrainingFile], matcher: Matcher, fields: Sequence[str]) -> str:
    facts = [
        (str(file.path.resolve()), file.path.stat().st_size, file.path.stat().st_mtime_ns)
        for file in files
    ]
    identity = json.dumps([_VERSION, facts, matcher.identity, list(fields)])
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def hit_of(file: str, row: int, text: Text, match: Match) -> Hit:
    """Return a match as a hit, with the part of the training text around the shared words."""
    column, excerpt = text
    if match.at > _BEFORE:
        starts = (word.start() for word in WORDS.finditer(excerpt))
        excerpt = f"… {excerpt[next(islice(starts, match.at - _BEFORE, None), 0) :]}"
    if len(excerpt) > _SHOWN:
        excerpt = excerpt[:_SHOWN].rsplit(" ", 1)[0] + " …"
    is_short_copy = match.kind == "exact" and len(words(text[1])) < SHORTEST
    return Hit(
        file,
        row,
        column,
        excerpt,
        match.measures,
        match.entry,
        match.kind,
        match.boilerplate,
        short=is_short_copy or match.short,
    )
