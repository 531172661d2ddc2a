"""What training data must leave out, in a form that others can use without seeing the texts.

docs/exclusions.md documents the format: a first line that says how texts were normalised and
hashed, then one line for each query, positive and same-source document. A text is recognised by a
hash of the whole and by hashes of chosen word runs: winnowing (Schleimer, Wilkerson, Aiken 2003)
keeps of every `WINDOW` neighbouring n-grams the one with the smallest hash, so any two texts that
share `GUARANTEE` words in a row share a fingerprint.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa

from r2med.atomic import atomic_file
from r2med.errors import UsageError
from r2med.tasks.task import Task, sources_of

Kind = Literal["query", "positive", "same-source"]
FORMAT = "r2med-exclusions"
VERSION = 1
#: Words in an n-gram, and neighbouring n-grams of which one is kept.
GRAM = 8
WINDOW = 4
#: A run of this many equal words is always recognised.
GUARANTEE = GRAM + WINDOW - 1
_WORDS = re.compile(r"[^\W_]+")
_HASH_BYTES = 8


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
    number of its passage only. An id that repeats is listed with each of its texts.
    """
    for name, text in task.queries.items():
        yield _exclusion(task, "query", name, text)
    judged = task.judgements
    positive = {*judged.document_ids.filter(pa.array(judged.scores > 0)).to_pylist()}
    documents = document_texts(task)
    sources = sources_of(documents)
    positive_sources = {sources[name] for name in positive if name in sources}
    rows = [(name, text) for name, texts in documents.items() for text in texts]
    hashes = {text_hash(text) for name, text in rows if name in positive}
    for name, text in rows:
        if name in positive:
            yield _exclusion(task, "positive", name, text)
    for name, text in rows:
        same = sources.get(name) in positive_sources or text_hash(text) in hashes
        if same and name not in positive:
            yield _exclusion(task, "same-source", name, text)


def document_texts(task: Task) -> dict[str, list[str]]:
    """The distinct texts of every document id; more than one where rows share the id."""
    texts: dict[str, list[str]] = {}
    for name, text in zip(task.corpus.ids.to_pylist(), task.corpus.texts.to_pylist(), strict=True):
        own = texts.setdefault(name, [])
        if text not in own:
            own.append(text)
    return texts


def write_exclusions(tasks: Sequence[Task], out: Path, *, force: bool = False) -> dict[str, int]:
    """Write the file (gzipped where its name ends in .gz) and count what it names, by kind."""
    if out.exists() and not force:
        raise UsageError(f"--out {out} exists, and it was not touched. --force replaces it.")
    counts: dict[str, int] = dict.fromkeys(get_args(Kind), 0)
    lines = [_line(_header(tasks))]
    for task in tasks:
        for excluded in exclusions(task):
            counts[excluded.kind] += 1
            lines.append(_line(asdict(excluded)))
    content = "".join(lines).encode()
    with atomic_file(out) as draft:
        draft.write_bytes(gzip.compress(content, mtime=0) if out.suffix == ".gz" else content)
    return counts


def words(text: str) -> list[str]:
    """The words a fingerprint sees: NFKC, case folded, letters and digits only."""
    return _WORDS.findall(unicodedata.normalize("NFKC", text).casefold())


def text_hash(text: str) -> str:
    """sha256 of the words joined by single spaces: equal for texts that differ in form alone."""
    return hashlib.sha256(" ".join(words(text)).encode()).hexdigest()


#: The hash of a text without a single word.
NO_WORDS = text_hash("")


def fingerprints(text: str) -> list[str]:
    """Chosen n-gram hashes as hexadecimal, sorted; a shorter text counts as one n-gram."""
    sequence = words(text)
    if not sequence:
        return []
    hashes = gram_hashes(sequence)
    windows = range(max(len(hashes) - WINDOW + 1, 1))
    return sorted({min(hashes[start : start + WINDOW]) for start in windows})


def gram_hashes(sequence: Sequence[str]) -> list[str]:
    """The hash of every run of eight words, in order; a shorter text counts as one run."""
    return [
        hashlib.blake2b(
            " ".join(sequence[start : start + GRAM]).encode(), digest_size=_HASH_BYTES
        ).hexdigest()
        for start in range(max(len(sequence) - GRAM + 1, 1))
    ]


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


def _line(row: dict[str, object]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"
