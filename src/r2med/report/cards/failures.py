"""Failures drawn from a real ranking: counted over all queries, shown by example."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from r2med.errors import plural
from r2med.report.table import document_text
from r2med.runs import Run
from r2med.tasks.task import Task, positives_of

EXAMPLES = 2
_DEEPEST, _SHALLOWEST = 100, 10
_WORD = re.compile(r"[a-z0-9]{4,}")
#: Common words of four letters and more that the list of stop words lacks.
_COMMON = {"with", "that", "this", "from", "have", "been", "were", "which", "what", "when"}
_UNKNOWN = "cannot be recognised: the data does not name body systems and answers of its queries."


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
class _Asked:
    """A query with its list, the positives, and the one of them that stands highest."""

    query: str
    ranked: list[str]
    positives: list[str]
    best: str

    def failure(self, first: str | None, positive: str, detail: str, *, at: int = 1) -> Failure:
        """A failure with the ranks that the whole list gives."""
        rank = self.ranked.index(positive) + 1 if positive in self.ranked else None
        return Failure(self.query, first, positive, rank, len(self.ranked), detail, at)


#: Failures of one kind, each with its place: those that come first are shown.
_Found = Iterator[tuple[int, Failure]]


def find_failures(task: Task, run: Run) -> list[Failures]:
    """The three kinds, by one ranking in the order in which it is measured.

    Documents to a certain rank count as retrieved: a list may hold all of a small corpus.
    """
    depth = min(_DEEPEST, max(_SHALLOWEST, len(task.corpus) // 10))
    asked = []
    for query, positives in positives_of(task.judgements).items():
        ranked, wanted = run.listed(query), set(positives)
        best = next((name for name in ranked if name in wanted), positives[0])
        asked.append(_Asked(query, ranked, positives, best))
    about = zip(
        task.queries.body_systems.to_pylist(), task.queries.answers.to_pylist(), strict=True
    )
    named = dict(zip(task.queries.ids.to_pylist(), about, strict=True))
    known = [each for each in asked if all(named.get(each.query, [None]))]
    kinds: list[tuple[str, list[_Asked], _Found]] = [
        ("Right body system, wrong diagnosis", known, _wrong_diagnosis(known, named, depth)),
        ("Surface overlap", asked, _surface_overlap(task, asked)),
        (f"Positive not among the first {depth}", asked, _not_retrieved(asked, depth)),
    ]
    counted = []
    for kind, among, failures in kinds:
        ordered = [failure for _, failure in sorted(failures, key=lambda pair: pair[0])]
        unknown = _UNKNOWN if among is known and not known else ""
        counted.append(Failures(kind, len(ordered), len(among), tuple(ordered[:EXAMPLES]), unknown))
    return counted


def _wrong_diagnosis(
    known: Sequence[_Asked], named: Mapping[str, tuple[str, str]], depth: int
) -> _Found:
    """Above every positive stands what answers another query of the same body system."""
    owners: dict[str, list[str]] = {}
    for each in known:
        for document in each.positives:
            owners.setdefault(document, []).append(each.query)
    for each in known:
        system, answer = named[each.query]
        for place, name in enumerate(each.ranked[:depth], start=1):
            if name == each.best:
                break
            others = (named[other] for other in owners.get(name, []))
            confused = next((a for s, a in others if s == system and a != answer), None)
            if confused is not None:
                detail = (
                    f"Both are {system}; asked for is {answer}, but evidence for {confused} "
                    f"stands at rank {place}, above every positive."
                )
                yield 0, each.failure(name, each.best, detail, at=place)
                break


def _surface_overlap(task: Task, asked: Sequence[_Asked]) -> _Found:
    """First stands a document that shares more words with the query than its best positive."""
    stop_words = (files("r2med.retrieve.bm25") / "nano_stop_words.txt").read_text(encoding="utf-8")
    left_out = {*stop_words.split(), *_COMMON}
    texts = dict(task.queries.items())
    for each in asked:
        first = next(iter(each.ranked), None)
        if each.query not in texts or first is None or first in each.positives:
            continue
        of_query, of_first, of_positive = (
            set(_WORD.findall(text.lower())) - left_out
            for text in (texts[each.query], *(document_text(task, d) for d in (first, each.best)))
        )
        shared, due = of_query & of_first, of_query & of_positive
        if len(shared) > len(due):
            detail = (
                f"The first document shares {plural(len(shared), 'word')} with the query, the "
                f"positive {len(due)}; only the former has: {', '.join(sorted(shared - due)[:8])}."
            )
            yield len(due) - len(shared), each.failure(first, each.best, detail)


def _not_retrieved(asked: Sequence[_Asked], depth: int) -> _Found:
    """A positive is not retrieved; queries of which no positive is come first."""
    for each in asked:
        missing = [name for name in each.positives if name not in each.ranked[:depth]]
        if missing:
            missing_of = f"{len(missing)} of {len(each.positives)}"
            detail = f"Positives not among the first {depth}: {missing_of}."
            failure = each.failure(next(iter(each.ranked), None), missing[0], detail)
            yield len(missing) < len(each.positives), failure
