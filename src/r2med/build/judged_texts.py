"""The judged texts of a task, in groups: positives, and three groups that probes compare them with.

*Hard negatives* are documents with a score of 0 for a query. *Never positive* are hard negatives
that are positive for no query. *Background* are documents that are judged for no query.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from r2med.judge.pool import texts_of
from r2med.measure.intervals import CONFIDENCE, SEED, Interval
from r2med.tasks.task import Task

Floats = NDArray[np.float64]
Against = Literal["hard negatives", "never positive", "background"]
AGAINST: tuple[Against, ...] = get_args(Against)
#: Scores of the positives and of the documents that they are compared with.
Group = tuple[Sequence[float], Sequence[float]]
_MOST_BACKGROUND = 2_000
_RESAMPLES = 2_000


@dataclass(frozen=True)
class JudgedQuery:
    """A query with the documents judged for it."""

    id: str
    text: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...]


@dataclass(frozen=True)
class Preference:
    """How often a rule scores a positive higher than another document; 0.5 is chance."""

    value: float
    interval: Interval
    pairs: int


@dataclass(frozen=True, eq=False)
class JudgedTexts:
    """Queries with judgements, and the texts of all documents in the groups."""

    queries: tuple[JudgedQuery, ...]
    texts: Mapping[str, str]
    background: tuple[str, ...]
    """Documents without judgements; at most 2,000, sampled with a fixed seed."""

    @classmethod
    def of(cls, task: Task) -> JudgedTexts:
        """Collect the judged texts of a task; judgements of unknown documents are left out."""
        judged = task.judgements.by_query()
        judged_ids = {document_id for scores in judged.values() for document_id in scores}
        all_ids = task.corpus.document_ids.to_pylist()
        background = _sample((d for d in all_ids if d not in judged_ids), _MOST_BACKGROUND)
        texts = texts_of(task, [*sorted(judged_ids), *background])

        def select(query_id: str, is_positive: bool) -> tuple[str, ...]:
            scores = judged.get(query_id, {})
            return tuple(d for d, s in scores.items() if (s > 0) is is_positive and d in texts)

        queries = tuple(
            JudgedQuery(query_id, text, select(query_id, True), select(query_id, False))
            for query_id, text in task.queries.items()
        )
        return cls(queries, texts, tuple(background))

    @cached_property
    def positives(self) -> frozenset[str]:
        """Documents that are positive for at least one query."""
        return frozenset(d for query in self.queries for d in query.positives)

    @cached_property
    def never_positive(self) -> frozenset[str]:
        """Hard negatives that are positive for no query."""
        return frozenset(d for query in self.queries for d in query.negatives) - self.positives

    def negatives_of(self, query: JudgedQuery, against: Against) -> tuple[str, ...]:
        """Return the documents of group `against` that a query's positives are compared with."""
        if against == "background":
            return self.background
        if against == "hard negatives":
            return query.negatives
        return tuple(d for d in query.negatives if d in self.never_positive)

    def compare_documents(
        self, scores: Mapping[str, float | None], against: Against
    ) -> Preference | None:
        """Return how often positives score higher than group `against`, by one score per document.

        Documents scored None are left out. Pairs are formed within each query, except against the
        background, where every positive counts once, even if several queries share it.
        """
        if against == "background":
            background = _present(scores[d] for d in self.background)
            positives = _present(scores[d] for d in sorted(self.positives))
            return prefer(([score], background) for score in positives)
        return self.compare_pairs(lambda _, document_id: scores[document_id], against)

    def compare_pairs(
        self, score: Callable[[JudgedQuery, str], float | None], against: Against
    ) -> Preference | None:
        """Return how often positives score higher than group `against`, within each query.

        Documents that `score` gives None for a query are left out.
        """

        def groups() -> Iterator[Group]:
            for query in self.queries:
                yield (
                    _present(score(query, d) for d in query.positives),
                    _present(score(query, d) for d in self.negatives_of(query, against)),
                )

        return prefer(groups())


def prefer(groups: Iterable[Group]) -> Preference | None:
    """Return the share of pairs in which the positive scores higher; ties count one half.

    The confidence interval resamples whole groups. The result is None if there is no pair.
    """
    wins, totals = [], []
    for positives, negatives in groups:
        difference = np.subtract.outer(np.asarray(positives), np.asarray(negatives))
        if difference.size:
            wins.append(float((difference > 0).sum() + 0.5 * (difference == 0).sum()))
            totals.append(difference.size)
    if not totals:
        return None
    value = sum(wins) / sum(totals)
    return Preference(value, _interval(np.array(wins), np.array(totals)), sum(totals))


def _interval(wins: Floats, totals: NDArray[np.int64]) -> Interval:
    """Return the bootstrap interval of the share of wins; groups are resampled."""
    random = np.random.default_rng(SEED)
    drawn = random.multinomial(len(wins), np.full(len(wins), 1 / len(wins)), size=_RESAMPLES)
    shares = (drawn @ wins) / (drawn @ totals)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(shares, [tail, 100 - tail])
    return Interval(float(low), float(high))


def _present(scores: Iterable[float | None]) -> list[float]:
    return [score for score in scores if score is not None]


def _sample(document_ids: Iterable[str], size: int) -> list[str]:
    """Return `size` ids, chosen by a hash of each id, so that the choice never changes."""
    ids = list(document_ids)
    if len(ids) <= size:
        return ids
    return sorted(ids, key=lambda name: hashlib.sha256(f"probe/{name}".encode()).digest())[:size]
