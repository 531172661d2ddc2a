"""Expanded queries as values: what was generated, what is searched for, and what fell back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from r2med.expand.combining import Rule, form
from r2med.expand.trace import Trace
from r2med.retrieve.interface import QueryForm

Outcome = Literal["ok", "truncated", "empty", "refused"]

#: Outcomes whose text is no help: the query stands for itself.
_USELESS: frozenset[Outcome] = frozenset({"empty", "refused"})


@dataclass(frozen=True)
class Sample:
    """One generation: as the model wrote it, and the answer in it."""

    raw: str
    answer: str
    outcome: Outcome = "ok"

    @property
    def useful(self) -> bool:
        """Whether it is searched with."""
        return self.outcome not in _USELESS


@dataclass(frozen=True)
class Expanded:
    """One query and what was generated for it; agents leave a trace for every sample."""

    query_id: str
    query: str
    samples: tuple[Sample, ...]
    traces: tuple[Trace, ...] = ()

    @property
    def answers(self) -> tuple[str, ...]:
        """The texts that are searched with; none means that the query stands for itself."""
        return tuple(sample.answer for sample in self.samples if sample.useful)


@dataclass(frozen=True)
class Expansion:
    """All queries of a task, expanded by one method and model."""

    queries: tuple[Expanded, ...]
    rule: Rule
    fuse: bool = False
    """Whether each sample is searched by itself and the runs are fused."""
    work: Mapping[str, object] = field(default_factory=dict)
    """What generating took: source, calls, tokens, seconds, money."""

    @property
    def variants(self) -> tuple[tuple[QueryForm, ...], ...]:
        """The forms to search with: one set, or one a sample where their runs are to be fused."""
        if not self.fuse:
            return (self._forms(None),)
        count = max((len(query.samples) for query in self.queries), default=1)
        return tuple(self._forms(place) for place in range(count))

    @property
    def fallen_back(self) -> tuple[str, ...]:
        """Ids of the queries without one useful generation."""
        return tuple(query.query_id for query in self.queries if not query.answers)

    def facts(self) -> Mapping[str, object]:
        """Counts for the record, and the first query as it is searched for."""
        outcomes = Counter(s.outcome for query in self.queries for s in query.samples)
        facts: dict[str, object] = {
            "queries": len(self.queries),
            "generations": outcomes.total(),
            "truncated": outcomes["truncated"],
            "empty": outcomes["empty"],
            "refused": outcomes["refused"],
            "fallen_back": len(self.fallen_back),
            **self.work,
        }
        if self.queries:
            first = self.variants[0][0]
            facts["first_lexical"] = first.lexical
            facts["first_dense"] = [part.text for part in first.dense]
        return facts

    def _forms(self, place: int | None) -> tuple[QueryForm, ...]:
        return tuple(
            form(query.query_id, query.query, _answers(query, place), self.rule)
            for query in self.queries
        )


def _answers(query: Expanded, place: int | None) -> tuple[str, ...]:
    if place is None:
        return query.answers
    return tuple(s.answer for s in query.samples[place : place + 1] if s.useful)
