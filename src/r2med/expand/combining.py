"""How queries and their generations become what is searched for, by the rule of the method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from r2med.errors import UsageError
from r2med.expand.agents import Trace
from r2med.expand.answers import Sample
from r2med.expand.prompts import filled
from r2med.retrieve.interface import Part, QueryForm

_QUERY = "{query}"
_GENERATED = "{generated}"


@dataclass(frozen=True)
class Rule:
    """Templates with {query} and {generated}: one for words, one or more for vectors to average."""

    lexical: str
    dense: tuple[str, ...]

    def __post_init__(self) -> None:
        for template in (self.lexical, *self.dense):
            if _QUERY not in template and _GENERATED not in template:
                raise UsageError(
                    f"combination rule {template!r}: expected {_QUERY} or {_GENERATED} in it."
                )

    def form(self, query_id: str, query: str, answers: Sequence[str]) -> QueryForm:
        """One query as it is searched for; without any answer it stands for itself.

        Several answers are joined by a space for words; for vectors each gives a part of its own,
        and the query enters the mean once.
        """
        if not answers:
            return QueryForm(query_id, query, (Part(query),))
        lexical = filled(self.lexical, query=query, generated=" ".join(answers))
        return QueryForm(query_id, lexical, tuple(self._parts(query, answers)))

    def _parts(self, query: str, answers: Sequence[str]) -> Iterator[Part]:
        for template in self.dense:
            if _GENERATED not in template:
                yield Part(filled(template, query=query))
                continue
            for answer in answers:
                text = filled(template, query=query, generated=answer)
                yield Part(text, generated=_QUERY not in template)


#: Every method combines so when the model reasons, since only its stripped answer is used.
ANSWER_ALONE = Rule(lexical=_GENERATED, dense=(_QUERY, _GENERATED))


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
    """Where the generations come from and what they took: calls, tokens, seconds, money."""

    @property
    def variants(self) -> tuple[tuple[QueryForm, ...], ...]:
        """The forms to search with: one set, or one per sample where their runs are fused."""
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
        samples = [sample for query in self.queries for sample in query.samples]
        outcomes = Counter(sample.outcome for sample in samples)
        facts: dict[str, object] = {
            "queries": len(self.queries),
            "generations": len(samples),
            "truncated": outcomes["truncated"],
            "empty": sum(s.outcome != "refused" and not s.answer.strip() for s in samples),
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
            self.rule.form(query.query_id, query.query, _answers(query, place))
            for query in self.queries
        )


def _answers(query: Expanded, place: int | None) -> tuple[str, ...]:
    if place is None:
        return query.answers
    return tuple(s.answer for s in query.samples[place : place + 1] if s.useful)
