"""Why a positive was missed: a short list of causes, each decided by numbers that can be checked.

The first cause whose rule holds counts, so every missed positive has exactly one. The order goes
from what no ranking could mend to what lies in the words. docs/diagnose.md explains each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

#: A positive at this rank or above counts as found, and this many documents are looked at.
TOP = 10
#: Two texts whose sets of terms have this much in common (Jaccard) are the same text.
TWIN = 0.8
#: A document with this share of the positive's key terms is about the same subject.
SAME_SUBJECT = 0.2
#: When this share of the corpus matches the query as well as the positive, its match is chance.
BY_CHANCE = 0.25
#: Or it matches nothing, or less than this part of what the top documents match.
FAR_LESS = 1 / 3


@dataclass(frozen=True)
class Case:
    """All numbers about one positive that the rules read; a `*_witness` names a document."""

    rank: int | None
    """None when the list does not hold it."""
    in_corpus: bool
    coverage: float
    """Share of the query's terms that it holds, rare ones weighing more."""
    as_well: float
    """Share of the corpus that covers the query at least as well."""
    top_coverage: float
    """Median coverage of the non-positives in the top 10."""
    likeness: float
    """The largest likeness (Jaccard of terms) to an unjudged document of the top 10."""
    twin_witness: str | None
    subject: float
    """The largest share of its key terms in a non-positive of the top 10."""
    subject_witness: str | None
    source_witness: str | None
    surface_witness: str | None
    query_words: int
    words: int
    query_limit: int | None
    limit: int | None
    """Tokens that the encoder or reranker reads of it; None when not known or not limited."""
    reranked: int | None
    """How many documents of each list were reranked; None without a reranker."""
    first_stage_rank: int | None
    """Its rank without the reranker or expansion, where that is stored."""


@dataclass(frozen=True)
class Cause:
    """A name for data, a title for tables, what it means, and the rule that decides it."""

    name: str
    title: str
    meaning: str
    holds: Callable[[Case], bool]
    witness: Callable[[Case], str | None] = lambda case: None
    """The document that shows the cause."""


def cause_of(case: Case) -> tuple[str | None, str | None]:
    """The cause and the document that shows it; (None, None) for a positive that is found."""
    if case.rank is not None and case.rank <= TOP:
        return None, None
    cause = next(cause for cause in CAUSES.values() if cause.holds(case))
    return cause.name, cause.witness(case)


def _few_terms(case: Case) -> bool:
    if case.coverage == 0 or case.coverage < FAR_LESS * case.top_coverage:
        return True
    return case.as_well >= BY_CHANCE and case.coverage < case.top_coverage


def _surface(case: Case) -> str | None:
    return case.surface_witness


_ALL = (
    Cause(
        "not-in-corpus",
        "not in the corpus",
        "it is judged relevant but the corpus does not hold it",
        lambda case: not case.in_corpus,
    ),
    Cause(
        "twin-retrieved",
        "unjudged twin found",
        f"the top {TOP} hold an unjudged document with nearly the same terms",
        lambda case: case.likeness >= TWIN,
        lambda case: case.twin_witness,
    ),
    Cause(
        "not-offered",
        "never a candidate",
        "the first stage did not offer it, so no reranker could help",
        lambda case: case.reranked is not None and (case.rank is None or case.rank > case.reranked),
    ),
    Cause(
        "demoted",
        "demoted",
        f"the first stage alone had it in the top {TOP}; the reranker or expansion lost it",
        lambda case: case.first_stage_rank is not None and case.first_stage_rank <= TOP,
    ),
    Cause(
        "query-cut",
        "query cut short",
        "the query has more words than the encoder reads tokens",
        lambda case: case.query_limit is not None and case.query_words > case.query_limit,
    ),
    Cause(
        "document-cut",
        "document cut short",
        "the positive has more words than the encoder reads tokens",
        lambda case: case.limit is not None and case.words > case.limit,
    ),
    Cause(
        "same-source",
        "wrong passage, same source",
        f"the top {TOP} hold another passage of the positive's source document",
        lambda case: case.source_witness is not None,
        lambda case: case.source_witness,
    ),
    Cause(
        "same-subject",
        "right subject, other text",
        f"a document in the top {TOP} shares the positive's key terms, which the query lacks",
        lambda case: case.subject >= SAME_SUBJECT,
        lambda case: case.subject_witness,
    ),
    Cause(
        "few-shared-terms",
        "few shared terms",
        "it hardly shares terms with the query; the link is knowledge, not words",
        _few_terms,
        _surface,
    ),
    Cause(
        "surface-match",
        "surface match ahead",
        "it shares some terms, but documents on other subjects share more",
        lambda case: case.coverage < case.top_coverage,
        _surface,
    ),
    Cause(
        "outranked",
        "not explained by words",
        f"it shares as much of the query as the top {TOP} do, yet stands below them",
        lambda case: True,
        _surface,
    ),
)

CAUSES: Mapping[str, Cause] = MappingProxyType({cause.name: cause for cause in _ALL})
