"""Failures drawn from a real ranking: counted over all queries, shown by example."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from r2med.nano.candidates import positives_of
from r2med.runs import Run
from r2med.tasks.task import Task

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
    """Why this kind cannot be told on this data."""


@dataclass(frozen=True)
class _Lists:
    """A ranking by query, with the positives it is held against."""

    ranked: dict[str, list[str]]
    positives: dict[str, list[str]]

    def best_positive(self, query: str) -> tuple[str, int | None]:
        """The positive that stands highest, or the first by id and None."""
        ranked = self.ranked.get(query, [])
        wanted = set(self.positives[query])
        for rank, name in enumerate(ranked, start=1):
            if name in wanted:
                return name, rank
        return self.positives[query][0], None


def find_failures(task: Task, run: Run) -> list[Failures]:
    """The three kinds, by one ranking.

    A list may hold all of a small corpus, so what counts as retrieved is cut at a tenth of it.
    """
    depth = min(_DEEPEST, max(_SHALLOWEST, len(task.corpus) // 10))
    run = run.truncated(depth)
    lists = _Lists(
        {query: [name for name, _ in run.ranking(query)] for query in run.query_ids.to_pylist()},
        positives_of(task.judgements),
    )
    texts = dict(
        zip(
            task.corpus.document_ids.to_pylist(),
            task.corpus.texts.take(task.corpus.last_rows).to_pylist(),
            strict=True,
        )
    )
    return [
        _wrong_diagnosis(task, lists),
        _surface_overlap(task, lists, texts),
        _never_retrieved(lists, depth),
    ]


def _wrong_diagnosis(task: Task, lists: _Lists) -> Failures:
    """Above every positive stands what answers another query of the same body system."""
    kind = "Right body system, wrong diagnosis"
    ids = task.queries.ids.to_pylist()
    answers = dict(zip(ids, task.queries.answers.to_pylist(), strict=True))
    systems = dict(zip(ids, task.queries.body_systems.to_pylist(), strict=True))
    known = [q for q in lists.positives if answers.get(q) and systems.get(q)]
    if not known:
        return Failures(
            kind, 0, 0, (), "The data does not name body systems and answers of its queries."
        )
    owners: dict[str, list[str]] = {}
    for query in known:
        for document in lists.positives[query]:
            owners.setdefault(document, []).append(query)
    found = []
    for query in known:
        positive, rank = lists.best_positive(query)
        above = lists.ranked.get(query, [])[: None if rank is None else rank - 1]
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
            found.append(Failure(query, name, positive, rank, detail, place))
    return Failures(kind, len(found), len(known), tuple(found[:EXAMPLES]))


def _surface_overlap(task: Task, lists: _Lists, texts: dict[str, str]) -> Failures:
    """First stands a document that shares more words with the query than its best positive."""
    asked = dict(zip(task.queries.ids.to_pylist(), task.queries.texts.to_pylist(), strict=True))
    found: list[tuple[int, Failure]] = []
    for query in lists.positives:
        first = next(iter(lists.ranked.get(query, [])), None)
        if query not in asked or first is None or first in lists.positives[query]:
            continue
        positive, rank = lists.best_positive(query)
        words = content_words(asked[query])
        shared = words & content_words(texts.get(first, ""))
        due = words & content_words(texts.get(positive, ""))
        if len(shared) > len(due):
            told = ", ".join(sorted(shared - due)[:8])
            detail = (
                f"The first document shares {len(shared)} words with the query, the positive "
                f"{len(due)}; only the former has: {told}."
            )
            found.append((len(shared) - len(due), Failure(query, first, positive, rank, detail)))
    found.sort(key=lambda pair: -pair[0])
    chosen = tuple(failure for _, failure in found[:EXAMPLES])
    return Failures("Surface overlap", len(found), len(lists.positives), chosen)


def _never_retrieved(lists: _Lists, depth: int) -> Failures:
    """A positive is nowhere in the list; queries without any found positive come first."""
    found: list[tuple[bool, Failure]] = []
    for query, positives in lists.positives.items():
        ranked = lists.ranked.get(query, [])
        missing = [name for name in positives if name not in set(ranked)]
        if missing:
            detail = (
                f"{len(missing)} of {len(positives)} positives are not among the first {depth}."
            )
            first = next(iter(ranked), None)
            none_found = len(missing) == len(positives)
            found.append((not none_found, Failure(query, first, missing[0], None, detail)))
    found.sort(key=lambda pair: pair[0])
    chosen = tuple(failure for _, failure in found[:EXAMPLES])
    return Failures(
        f"Positive not among the first {depth}", len(found), len(lists.positives), chosen
    )


def content_words(text: str) -> set[str]:
    """Words of four letters and more that carry meaning."""
    return set(_content(text.lower()))


def _content(text: str) -> Iterator[str]:
    return (word for word in _WORD.findall(text) if word not in _stop_words())


@cache
def _stop_words() -> frozenset[str]:
    source = files("r2med.retrieve.bm25") / "nano_stop_words.txt"
    common = {"with", "that", "this", "from", "have", "been", "were", "which", "what", "when"}
    return frozenset(source.read_text(encoding="utf-8").split()) | common
