"""What an audit looks for: the distinct texts of tasks, with every place where each stands."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from r2med.audit.exclusions import text_hash, words
from r2med.audit.matching import NGRAM, Index, Match
from r2med.errors import UsageError, nearest
from r2med.nano.candidates import positives_of
from r2med.tasks.task import Task, passage_stems

Role = Literal["query", "positive", "document"]
AGAINST: dict[str, Role] = {"queries": "query", "positives": "positive", "corpus": "document"}
SEED = 20260524
#: A number alone, or a letter or two, names no source.
_TELLING = re.compile(r"[^\W\d_]{3}")
_PMC = re.compile(r"PMC\d{4,}", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """A query, a positive, or another document of a task."""

    task: str
    role: Role
    id: str


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Texts that are distinct in their words; `places[i]` is where text `i` stands."""

    texts: list[str]
    places: list[list[Place]]
    audited: Mapping[tuple[str, Role], int]
    """How many queries, positives and documents are looked for, by task."""
    total: Mapping[tuple[str, Role], int]
    """How many there are; more than `audited` where a sample was drawn."""
    positives: Mapping[tuple[str, str], frozenset[str]]
    """Positives by task and query."""
    hashes: Mapping[str, str]
    """The hash of each task's data."""
    suites: Mapping[str, str | None]
    sources: Mapping[str, list[int]]
    """Texts of positives by the source that their ids name; see `source_names`."""


def evaluation(
    tasks: Iterable[Task],
    against: Sequence[Role] = ("query", "positive"),
    *,
    sample: int | None = None,
) -> Evaluation:
    """The texts of some tasks that an audit looks for.

    `sample` draws at most so many of each kind from every task, the same ones each time.
    """
    texts: dict[tuple[str, ...], int] = {}
    kept: list[str] = []
    places: list[list[Place]] = []
    audited: dict[tuple[str, Role], int] = {}
    total: dict[tuple[str, Role], int] = {}
    positives: dict[tuple[str, str], frozenset[str]] = {}
    hashes: dict[str, str] = {}
    suites: dict[str, str | None] = {}
    sources: dict[str, list[int]] = {}
    for task in tasks:
        hashes[task.name], suites[task.name] = task.hash, task.suite
        judged = positives_of(task.judgements)
        stems = passage_stems(task.corpus.document_ids.to_pylist())
        positives.update({(task.name, q): frozenset(own) for q, own in judged.items()})
        for role, rows in _by_role(task, judged).items():
            if role not in against:
                continue
            chosen = rows
            if sample is not None and sample < len(rows):
                chosen = random.Random(f"{SEED}/{task.name}/{role}").sample(rows, sample)
            audited[task.name, role], total[task.name, role] = len(chosen), len(rows)
            for name, text in chosen:
                key = tuple(words(text))
                if not key:
                    continue
                if key not in texts:
                    texts[key] = len(kept)
                    kept.append(text)
                    places.append([])
                places[texts[key]].append(Place(task.name, role, name))
                if role == "positive":
                    for source in source_names(name, stems.get(name)):
                        sources.setdefault(source, []).append(texts[key])
    return Evaluation(kept, places, audited, total, positives, hashes, suites, sources)


def roles_of(text: str) -> tuple[Role, ...]:
    """What `--against queries,positives,corpus` names."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in AGAINST:
            raise UsageError(f"--against {name!r} is not known. {nearest(name, AGAINST)}")
    return tuple(AGAINST[name] for name in names)


def source_names(mark: str, stem: str | None) -> set[str]:
    """The sources that an id, title or address names: a PMC id, or all before a passage's number.

    It is the rule of exclusion lists: ids that differ in the number of the passage only.
    """
    names = {found.upper() for found in _PMC.findall(mark)}
    if stem is not None and _TELLING.search(stem):
        names.add(stem)
    return names


def named_sources(mark: str, sources: Mapping[str, list[int]]) -> list[int]:
    """The texts of positives that share their source with what a training row names."""
    names = source_names(mark, mark) | source_names(mark, passage_stems([mark]).get(mark))
    return sorted({entry for name in names for entry in sources.get(name, ())})


def _by_role(task: Task, judged: Mapping[str, Sequence[str]]) -> dict[Role, list[tuple[str, str]]]:
    rows = task.corpus.last_rows
    names = task.corpus.document_ids.to_pylist()
    texts = task.corpus.texts.take(rows).to_pylist()
    relevant = {name for own in judged.values() for name in own}
    documents = list(zip(names, texts, strict=True))
    return {
        "query": list(task.queries.items()),
        "positive": [row for row in documents if row[0] in relevant],
        "document": [row for row in documents if row[0] not in relevant],
    }


class TextMatcher:
    """Finds the texts of an evaluation by their words, and their sources by name."""

    def __init__(self, wanted: Evaluation, *, ngram: int = NGRAM) -> None:
        self._index = Index(wanted.texts, ngram=ngram)
        self._sources = wanted.sources
        digest = hashlib.sha256(f"{ngram}".encode())
        for text in wanted.texts:
            digest.update(text_hash(text).encode())
        digest.update(json.dumps(wanted.sources, sort_keys=True).encode())
        self.identity = digest.hexdigest()

    def matches(self, texts: Sequence[str]) -> list[Match]:
        """All verified matches."""
        return self._index.matches(texts)

    def named(self, marks: Sequence[str]) -> list[int]:
        """The positives that come from a source which some ids or titles name."""
        return sorted({entry for mark in marks for entry in named_sources(mark, self._sources)})
