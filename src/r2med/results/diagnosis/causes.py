"""Why a positive was missed: a short list of causes, each decided by numbers that can be checked.

The first cause whose rule holds is given, so every missed positive has exactly one. The order goes
from what no ranking could mend to what lies in the words. docs/diagnose.md explains each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

#: A positive at this rank or above counts as found, and this many documents are looked at.
TOP = 10
#: Two texts whose sets of terms have this much in common (Jaccard) are the same text.
TWIN = 0.8
#: A document with this share of the positive's key terms is about the same subject.
SAME_SUBJECT = 0.2
#: A positive matches the query no better than so many of all documents: its words say nothing.
BY_CHANCE = 0.25
#: Or it matches nothing, or less than this part of what the top documents match.
FAR_LESS = 1 / 3


@dataclass(frozen=True)
class Cause:
    """A name for data, a title for tables, and what it means."""

    name: str
    title: str
    meaning: str


_ALL = (
    Cause(
        "not-in-corpus",
        "not in the corpus",
        "it is judged relevant but the corpus does not hold it",
    ),
    Cause(
        "twin-retrieved",
        "unjudged twin found",
        f"the top {TOP} hold an unjudged document with nearly the same terms",
    ),
    Cause(
        "not-offered",
        "never a candidate",
        "the first stage did not offer it, so no reranker could help",
    ),
    Cause(
        "demoted",
        "demoted",
        f"the first stage alone had it in the top {TOP}; the reranker or expansion lost it",
    ),
    Cause(
        "query-cut",
        "query cut short",
        "the query has more words than the encoder reads tokens",
    ),
    Cause(
        "document-cut",
        "document cut short",
        "the positive has more words than the encoder reads tokens",
    ),
    Cause(
        "same-source",
        "wrong passage, same source",
        f"the top {TOP} hold another passage of the positive's source document",
    ),
    Cause(
        "same-subject",
        "right subject, other text",
        f"a document in the top {TOP} shares the positive's key terms, which the query lacks",
    ),
    Cause(
        "few-shared-terms",
        "few shared terms",
        "it hardly shares terms with the query: the link is knowledge, not words",
    ),
    Cause(
        "surface-match",
        "surface match ahead",
        "it shares some terms, but documents on other subjects share more",
    ),
    Cause(
        "outranked",
        "not explained by words",
        f"it shares as much of the query as the top {TOP} do, yet stands below them",
    ),
)

CAUSES: Mapping[str, Cause] = MappingProxyType({cause.name: cause for cause in _ALL})
