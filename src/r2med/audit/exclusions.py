"""What training data must leave out, in a form that others can use without seeing the texts.

docs/exclusions.md documents the format: a first line that says how texts were normalised and
hashed, then one line for each query, positive and same-source document.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from r2med.atomic import atomic_file
from r2med.audit.fingerprints import GRAM, GUARANTEE, WINDOW, fingerprints, text_hash
from r2med.errors import DataError, UsageError
from r2med.tasks.task import Task

Kind = Literal["query", "positive", "same-source"]
FORMAT = "r2med-exclusions"
VERSION = 1
#: `PMC123_4`, `Enzyme-2.txt`, `wiki#7`: a source and the number of a passage in it.
_PASSAGE = re.compile(r"(?P<source>.+)[_\-.:#/]\d+(\.[a-z]{1,5})?")


@dataclass(frozen=True)
class Exclusion:
    """One text to leave out."""

    task: str
    kind: Kind
    id: str
    sha256: str
    fingerprints: tuple[str, ...]


def exclusions(task: Task) -> Iterator[Exclusion]:
    """Queries, their positives, and documents of the same source as a positive.

    Same source: an equal text under another id, or an id that differs from a positive's in the
    number of its passage only.
    """
    for query, text in zip(
        task.queries.ids.to_pylist(), task.queries.texts.to_pylist(), strict=True
    ):
        yield _exclusion(task, "query", query, text)
    positive = set(
        task.judgements.document_ids.take(pa.array(np.flatnonzero(task.judgements.scores > 0)))
        .unique()
        .to_pylist()
    )
    texts = task.corpus.texts.take(pa.array(task.corpus.last_rows))
    documents = list(zip(task.corpus.document_ids.to_pylist(), texts.to_pylist(), strict=True))
    found = [
        _exclusion(task, "positive", name, text) for name, text in documents if name in positive
    ]
    yield from found
    yield from _same_source(task, documents, positive, {one.sha256 for one in found})


def source_of(document_id: str) -> str | None:
    """The id without the number of the passage; None where it has none."""
    found = _PASSAGE.fullmatch(document_id)
    return found["source"] if found else None


def write_exclusions(tasks: Sequence[Task], out: Path, *, force: bool = False) -> dict[str, int]:
    """Write the file (gzipped where its name ends in .gz) and count what it names, by kind."""
    if out.exists() and not force:
        raise UsageError(f"--out {out} exists, and it was not touched. --force replaces it.")
    counts: dict[str, int] = {"query": 0, "positive": 0, "same-source": 0}
    lines = [_line(_header(tasks))]
    for task in tasks:
        for one in exclusions(task):
            counts[one.kind] += 1
            lines.append(_line(_row(one)))
    content = "".join(lines).encode()
    with atomic_file(out) as draft:
        draft.write_bytes(gzip.compress(content, mtime=0) if out.suffix == ".gz" else content)
    return counts


def read_exclusions(path: Path) -> list[Exclusion]:
    """Read a file back; a file of another format or version is refused."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    first, *lines = text.splitlines() or ["{}"]
    header = json.loads(first) if first.startswith("{") else {}
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise DataError(
            f"{path}, line 1: not a list of exclusions of version {VERSION}; the first line "
            f'of one has "format": "{FORMAT}".'
        )
    return [_exclusion_of(json.loads(line)) for line in lines]


def _exclusion_of(row: dict[str, Any]) -> Exclusion:
    return Exclusion(row["task"], row["kind"], row["id"], row["sha256"], tuple(row["fingerprints"]))


def _same_source(
    task: Task, documents: Iterable[tuple[str, str]], positive: set[str], hashes: set[str]
) -> Iterator[Exclusion]:
    sources = {source for name in positive if (source := source_of(name))}
    generic = _generic(sources, [name for name, _ in documents])
    for name, text in documents:
        if name in positive:
            continue
        source = source_of(name)
        if (source in sources and source not in generic) or text_hash(text) in hashes:
            yield _exclusion(task, "same-source", name, text)


def _generic(sources: set[str], names: Sequence[str]) -> set[str]:
    """Stems that say nothing of a source because a large part of the corpus has them (`doc_17`)."""
    count: dict[str, int] = {}
    for name in names:
        source = source_of(name)
        if source in sources:
            count[source] = count.get(source, 0) + 1
    return {source for source, times in count.items() if times > max(50, len(names) // 20)}


def _exclusion(task: Task, kind: Kind, name: str, text: str) -> Exclusion:
    return Exclusion(task.name, kind, name, text_hash(text), tuple(fingerprints(text)))


def _header(tasks: Sequence[Task]) -> dict[str, object]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "normalisation": "NFKC, casefold, runs of letters and digits joined by one space",
        "sha256": "of the normalised text",
        "fingerprints": f"blake2b-64 of {GRAM} words, winnowed over {WINDOW} neighbours; "
        f"{GUARANTEE} equal words in a row always share one",
        "tasks": {task.name: task.hash for task in tasks},
    }


def _row(one: Exclusion) -> dict[str, object]:
    return {
        "task": one.task,
        "kind": one.kind,
        "id": one.id,
        "sha256": one.sha256,
        "fingerprints": list(one.fingerprints),
    }


def _line(row: dict[str, object]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"
