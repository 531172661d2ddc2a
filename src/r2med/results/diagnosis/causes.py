"""Causes of missed positives: a short list, each decided by numbers that can be checked.

The first cause whose rule holds counts, so every missed positive has exactly one. Causes that no
ranking could avoid come first, those in the wording last. docs/diagnose.md explains each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

#: A positive at this rank or above counts as found, and this many documents are looked at.
TOP = 10
#: Two texts whose sets of terms have this much in common (Jaccard) are the same text.
TWIN = 0.8
#: A document with this share of the positive's key terms is about the same subject.
SAME_SUBJECT = 0.2
#: When this share of the corpus matches the query as well as the positive, its match is chance.
BY_CHANCE = 0.25
#: The same if it matches less than this part of the share that the top documents match.
FAR_LESS = 1 / 3

#: Causes that the best surface match among the top documents shows.
SURFACE_CAUSES = ("few-shared-terms", "surface-match", "outranked")


@dataclass(frozen=True, kw_only=True)
class PositiveFinding:
    """One positive of one query, with the numbers that the rules read and, if missed, the cause."""

    rank: int | None
    """Rank of the positive; None if the list does not contain it."""
    in_corpus: bool
    coverage: float
    """Share of the query's terms that the positive has; rare terms weigh more."""
    as_well: float
    """Share of the corpus that covers the query at least as well as the positive."""
    top_coverage: float
    """Median coverage of the query by the non-positives in the top 10."""
    likeness: float
    """The positive's highest Jaccard similarity to an unjudged document in the top 10."""
    subject: float
    """Largest share of the positive's key terms that a non-positive in the top 10 has."""
    witnesses: Mapping[str, str | None]
    """The document that shows a cause, by cause: the twin, the other passage, the best surface
    match."""
    query_terms: int
    """Number of distinct terms of the query that occur in the corpus."""
    query_words: int
    words: int
    query_limit: int | None
    limit: int | None
    """Tokens that the encoder or reranker reads of the positive; None if unknown or not limited."""
    reranked: int | None
    """How many documents of each list were reranked; None without a reranker."""
    first_stage_rank: int | None
    """Rank of the positive without the reranker or expansion; None if not listed or not stored."""
    document_id: str
    relevance: int
    cause: str | None = None
    """Name of the cause, a key of `CAUSES`; None if the positive is found."""
    witness: str | None = None
    """Id of the document that shows the cause, if there is one."""
    shared_terms: int

    def with_cause(self) -> PositiveFinding:
        """Add the cause to a missed positive: the first cause whose rule holds."""
        if self.rank is not None and self.rank <= TOP:
            return self
        cause = next(name for name, candidate in CAUSES.items() if candidate.holds(self))
        return replace(self, cause=cause, witness=self.witnesses.get(cause))

    @property
    def failure(self) -> str | None:
        """Where a missed positive was lost; None if it was found."""
        if self.cause is None:
            return None
        if self.cause == "demoted":
            return "lost by the last stage"
        return "not in the list" if self.rank is None else "in the list, but low"


@dataclass(frozen=True)
class Cause:
    """A cause: its name, its meaning and the rule that decides it."""

    name: str
    meaning: str
    holds: Callable[[PositiveFinding], bool]
    evidence: str
    """Template of a sentence with the numbers that support the cause."""

    @property
    def title(self) -> str:
        """The name with spaces instead of hyphens, for tables and pages."""
        return self.name.replace("-", " ")


SHARING = (
    "it shares {positive.shared_terms} of the query's {positive.query_terms} terms ({coverage} by "
    "weight: rare terms count more)"
)
_WRONG = f"a typical wrong document in the top {TOP} shares {{top_coverage}}"


def _few_terms(case: PositiveFinding) -> bool:
    if case.coverage == 0 or case.coverage < FAR_LESS * case.top_coverage:
        return True
    return case.as_well >= BY_CHANCE and case.coverage < case.top_coverage


_ALL = (
    Cause(
        "not-in-corpus",
        "it is judged relevant but the corpus does not hold it",
        lambda case: not case.in_corpus,
        "the corpus does not hold it",
    ),
    Cause(
        "twin-retrieved",
        f"the top {TOP} hold an unjudged document with nearly the same terms",
        lambda case: case.likeness >= TWIN,
        f"{{positive.witness}}, in the top {TOP}, has {{likeness}} of its terms and is not judged",
    ),
    Cause(
        "not-offered",
        "the first stage did not offer it, so no reranker could help",
        lambda case: case.reranked is not None and (case.rank is None or case.rank > case.reranked),
        "not among the documents given to the reranker",
    ),
    Cause(
        "demoted",
        f"the first stage alone had it in the top {TOP}; the reranker or expansion lost it",
        lambda case: case.first_stage_rank is not None and case.first_stage_rank <= TOP,
        "rank {positive.first_stage_rank} in the first stage alone, {now}",
    ),
    Cause(
        "query-cut",
        "the query has more words than the encoder reads tokens",
        lambda case: case.query_limit is not None and case.query_words > case.query_limit,
        "the query has {positive.query_words} words, more than the encoder reads tokens",
    ),
    Cause(
        "document-cut",
        "the positive has more words than the encoder reads tokens",
        lambda case: case.limit is not None and case.words > case.limit,
        "words in it: {positive.words}; tokens of it that are read: at most {positive.limit}",
    ),
    Cause(
        "same-source",
        f"the top {TOP} hold another passage of the positive's source document",
        lambda case: case.witnesses.get("same-source") is not None,
        "{positive.witness} is of the same source",
    ),
    Cause(
        "same-subject",
        f"a document in the top {TOP} shares the positive's key terms, which the query lacks",
        lambda case: case.subject >= SAME_SUBJECT,
        f"{{positive.witness}}, in the top {TOP}, has {{subject}} of its key terms, and the query "
        "none of those",
    ),
    Cause(
        "few-shared-terms",
        "it hardly shares terms with the query; the link is knowledge, not words",
        _few_terms,
        f"{SHARING}; {{as_well}} of all documents share as much, and {_WRONG}",
    ),
    Cause(
        "surface-match",
        "it shares some terms, but documents on other subjects share more",
        lambda case: case.coverage < case.top_coverage,
        f"{SHARING}; {_WRONG}, {{positive.witness}} the most, but none has more than {{subject}} "
        "of its key terms",
    ),
    Cause(
        "outranked",
        f"it shares as much of the query as the top {TOP} do, yet ranks below them",
        lambda case: True,
        f"{SHARING}; {_WRONG}",
    ),
)

CAUSES: Mapping[str, Cause] = MappingProxyType({cause.name: cause for cause in _ALL})
