"""Failures drawn from a real ranking: counted over all queries, shown by example."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from r2med.report.table import document_text, plural
from r2med.runs import Run
from r2med.tasks.task import Task, positives_of

EXAMPLES = 2
_DEEPEST, _SHALLOWEST = 100, 10
_WORD = re.compile(r"[a-z0-9]{4,}")


@dataclass(frozen=True)
class Failure:
    """One query that went wrong: what stood in front, and a positive that should have."""

    query: str
    first: str | None
    positive: str
    positive_rank: int | None
    """None where the positive is not in the list at all."""
    listed: int
    """How many documents the list holds."""
    detail: str
    first_rank: int = 1


@dataclass(frozen=True)
class Failures:
    """One kind of failure: how many of how many queries, and a few of them."""

    kind: str
    affected: int
    of: int
    examples: tuple[Failure, ...]
    open: str = ""
    """Why this kind cannot be recognised in this data."""


@dataclass(frozen=True)
class _Lists:
    """A ranking by query, with the positives it is held against."""

    ranked: dict[str, list[str]]
    positives: dict[str, list[str]]
    depth: int
    """Documents to this rank count as retrieved: a list may hold all of a small corpus."""

    def rank(self, query: str, document: str) -> int | None:
        """The rank of a document in the whole list."""
        ranked = self.ranked.get(query, [])
        return ranked.index(document) + 1 if document in ranked else None

    def best_positive(self, query: str) -> str:
        """The positive that stands highest; of unlisted ones the first by id."""
        positives = self.positives[query]
        wanted = set(positives)
        return next((name for name in self.ranked.get(query, []) if name in wanted), positives[0])

    def failure(
        self, query: str, first: str | None, positive: str, detail: str, *, first_rank: int = 1
    ) -> Failure:
        """A failure with the ranks that the whole list gives."""
        listed = len(self.ranked.get(query, []))
        rank = self.rank(query, positive)
        return Failure(query, first, positive, rank, listed, detail, first_rank)


def find_failures(task: Task, run: Run) -> list[Failures]:
    """The three kinds, by one ranking in the order in which it is measured."""
    lists = _Lists(
        {query: [name for name, _ in run.ranking(query)] for query in run.query_ids.to_pylist()},
        positives_of(task.judgements),
        min(_DEEPEST, max(_SHALLOWEST, len(task.corpus) // 10)),
    )
    return [_wrong_diagnosis(task, lists), _surface_overlap(task, lists), _not_retrieved(lists)]


def _wrong_diagnosis(task: Task, lists: _Lists) -> Failures:
    """Above every positive stands what answers another query of the same body system."""
    kind = "Right body system, wrong diagnosis"
    ids = task.queries.ids.to_pylist()
    answers = dict(zip(ids, task.queries.answers.to_pylist(), strict=True))
    systems = dict(zip(ids, task.queries.body_systems.to_pylist(), strict=True))
    known = [q for q in lists.positives if answers.get(q) and systems.get(q)]
    if not known:
        why = (
            "cannot be recognised: the data does not name body systems and answers of its queries."
        )
        return Failures(kind, 0, 0, (), why)
    owners: dict[str, list[str]] = {}
    for query in known:
        for document in lists.positives[query]:
            owners.setdefault(document, []).append(query)
    failures = []
    for query in known:
        positive = lists.best_positive(query)
        rank = lists.rank(query, positive) or lists.depth + 1
        above = lists.ranked.get(query, [])[: min(rank - 1, lists.depth)]
        confused = [
            (place, name, other)
            for place, name in enumerate(above, start=1)
            for other in owners.get(name, [])
            if systems[other] == systems[query] and answers[other] != answers[query]
        ]
        if confused:
            place, name, other = confused[0]
            detail = (
                f"Both are {systems[query]}; asked for is {answers[query]}, but evidence for "
                f"{answers[other]} stands at rank {place}, above every positive."
            )
            failures.append((0, lists.failure(query, name, positive, detail, first_rank=place)))
    return _grouped(kind, len(known), failures)


def _surface_overlap(task: Task, lists: _Lists) -> Failures:
    """First stands a document that shares more words with the query than its best positive."""
    asked = dict(zip(task.queries.ids.to_pylist(), task.queries.texts.to_pylist(), strict=True))
    failures = []
    for query, positives in lists.positives.items():
        first = next(iter(lists.ranked.get(query, [])), None)
        if query not in asked or first is None or first in positives:
            continue
        positive = lists.best_positive(query)
        words = content_words(asked[query])
        shared, due = (
            words & content_words(document_text(task, name)) for name in (first, positive)
        )
        if len(shared) > len(due):
            detail = (
                f"The first document shares {plural(len(shared), 'word')} with the query, the "
                f"positive {len(due)}; only the former has: {', '.join(sorted(shared - due)[:8])}."
            )
            failure = lists.failure(query, first, positive, detail)
            failures.append((len(due) - len(shared), failure))
    return _grouped("Surface overlap", len(lists.positives), failures)


def _not_retrieved(lists: _Lists) -> Failures:
    """A positive is not retrieved; queries of which no positive is come first."""
    failures = []
    for query, positives in lists.positives.items():
        ranked = lists.ranked.get(query, [])
        retrieved = set(ranked[: lists.depth])
        missing = [name for name in positives if name not in retrieved]
        if missing:
            missing_of = f"{len(missing)} of {len(positives)}"
            detail = f"Positives not among the first {lists.depth}: {missing_of}."
            failure = lists.failure(query, next(iter(ranked), None), missing[0], detail)
            failures.append((len(missing) < len(positives), failure))
    kind = f"Positive not among the first {lists.depth}"
    return _grouped(kind, len(lists.positives), failures)


def _grouped(kind: str, of: int, failures: Iterable[tuple[int, Failure]]) -> Failures:
    """Failures of one kind, each with its place: those that come first are shown."""
    ranked = sorted(failures, key=lambda pair: pair[0])
    return Failures(kind, len(ranked), of, tuple(failure for _, failure in ranked[:EXAMPLES]))


def content_words(text: str) -> set[str]:
    """Words of four letters and more that carry meaning."""
    return {word for word in _WORD.findall(text.lower()) if word not in _stop_words()}


@cache
def _stop_words() -> frozenset[str]:
    source = files("r2med.retrieve.bm25") / "nano_stop_words.txt"
    common = {"with", "that", "this", "from", "have", "been", "were", "which", "what", "when"}
    return frozenset(source.read_text(encoding="utf-8").split()) | common
