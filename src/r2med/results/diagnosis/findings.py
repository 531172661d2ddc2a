"""What a diagnosis consists of: plain values, the same in tables, JSON and Parquet."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from r2med.results.diagnosis.causes import CAUSES

Outcome = Literal["all found", "some found", "none found"]
Label = Literal["positive", "not relevant", "unjudged"]


@dataclass(frozen=True)
class PositiveFinding:
    """One positive of one query: where it stands and, when missed, why, with the numbers."""

    document_id: str
    relevance: int
    rank: int | None
    """None when the list does not hold it."""
    cause: str | None
    """A name in `CAUSES`; None when it is found."""
    witness: str | None
    """The document that shows the cause: the twin, the other passage, the best surface match."""
    coverage: float
    """Share of the query's terms that it holds, rare ones weighing more."""
    shared_terms: int
    as_well: float
    """Share of the corpus that covers the query at least as well."""
    top_coverage: float
    """Median coverage of the non-positives in the top 10."""
    subject: float
    """The largest share of its key terms in a non-positive of the top 10."""
    likeness: float
    """The largest likeness (Jaccard of terms) to an unjudged document of the top 10."""
    words: int
    limit: int | None
    """Tokens that the encoder or reranker reads of it; None when not known or not limited."""
    first_stage_rank: int | None
    """Its rank without the reranker or expansion, where that is stored."""


@dataclass(frozen=True)
class RankedFinding:
    """One document of the top 10."""

    rank: int
    document_id: str
    label: Label
    coverage: float
    shared: tuple[str, ...]
    """Query words it holds, the rarest first."""
    answers: tuple[str, ...]
    """What it is evidence for, as the judgements of other queries say."""


@dataclass(frozen=True)
class QueryFinding:
    """One query: its score, its positives, and what stands in their place."""

    query_id: str
    score: float
    hit: bool
    words: int
    terms: int
    """Distinct terms that the corpus knows."""
    answer: str | None
    body_system: str | None
    overlap: float
    """Coverage of the query by that of its positives which covers it best."""
    positives: tuple[PositiveFinding, ...]
    top: tuple[RankedFinding, ...]

    @property
    def missed(self) -> tuple[PositiveFinding, ...]:
        """Positives below the top 10, the best placed first."""
        return tuple(each for each in self.positives if each.cause is not None)

    @property
    def outcome(self) -> Outcome:
        """Whether the positives are in the top 10."""
        if not self.missed:
            return "all found"
        return "none found" if len(self.missed) == len(self.positives) else "some found"

    @property
    def cause(self) -> str | None:
        """The most frequent cause among the missed positives, the earlier in the list on a tie."""
        counts = Counter(each.cause for each in self.missed)
        order = list(CAUSES)
        return min(counts, key=lambda name: (-counts[name], order.index(str(name))), default=None)

    @property
    def holes(self) -> int:
        """Unjudged documents in the top 10."""
        return sum(each.label == "unjudged" for each in self.top)


@dataclass(frozen=True)
class Diagnosis:
    """One system on one task; `open` says what could not be told, and why."""

    system: str
    task: str
    suite: str | None
    family: str | None
    data: str
    metric: str
    depth: int
    """The longest list of the run."""
    queries: tuple[QueryFinding, ...]
    open: tuple[str, ...]

    @property
    def causes(self) -> dict[str, int]:
        """Missed positives by cause, in the order of the list, those that occur."""
        counts = Counter(each.cause for query in self.queries for each in query.missed)
        return {name: counts[name] for name in CAUSES if counts[name]}

    @property
    def positives(self) -> int:
        """All positives."""
        return sum(len(query.positives) for query in self.queries)

    @property
    def out_of_reach(self) -> int:
        """Positives that the list does not hold: no reranker of it could help."""
        return sum(each.rank is None for query in self.queries for each in query.positives)

    @property
    def holes(self) -> int:
        """Unjudged documents in all the top 10s."""
        return sum(query.holes for query in self.queries)

    @property
    def looked_at(self) -> int:
        """Documents in all the top 10s."""
        return sum(len(query.top) for query in self.queries)
