"""The numbers behind a cause, as a sentence a reader can check."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from r2med.results.diagnosis.causes import TOP
from r2med.results.diagnosis.findings import PositiveFinding, QueryFinding


def evidence(query: QueryFinding, positive: PositiveFinding) -> str:
    """Why a positive has its cause; what it shares when it is found."""
    told = _SENTENCES.get(positive.cause or "", _sharing)
    return told(query, positive)


def _sharing(query: QueryFinding, positive: PositiveFinding) -> str:
    return (
        f"holds {positive.shared_terms} of {query.terms} query terms, "
        f"{_percent(positive.coverage)} by weight"
    )


def _few(query: QueryFinding, positive: PositiveFinding) -> str:
    return (
        f"{_sharing(query, positive)}; {_percent(positive.as_well)} of the corpus hold as much, "
        f"the wrong documents of the top {TOP} hold {_percent(positive.top_coverage)}"
    )


def _surface(query: QueryFinding, positive: PositiveFinding) -> str:
    return (
        f"{_sharing(query, positive)}; the wrong documents of the top {TOP} hold "
        f"{_percent(positive.top_coverage)} (most: {positive.witness}) but at most "
        f"{_percent(positive.subject)} of its key terms"
    )


def _subject(query: QueryFinding, positive: PositiveFinding) -> str:
    return (
        f"{positive.witness} in the top {TOP} holds {_percent(positive.subject)} of its key terms, "
        "none of which is in the query"
    )


def _twin(query: QueryFinding, positive: PositiveFinding) -> str:
    return (
        f"{positive.witness} in the top {TOP} has {_percent(positive.likeness)} of its terms "
        "and is not judged"
    )


def _demoted(query: QueryFinding, positive: PositiveFinding) -> str:
    now = "not in the list" if positive.rank is None else f"{positive.rank} now"
    return f"rank {positive.first_stage_rank} in the first stage alone, {now}"


def _query_cut(query: QueryFinding, positive: PositiveFinding) -> str:
    return f"the query has {query.words} words, more than the encoder reads tokens"


def _document_cut(query: QueryFinding, positive: PositiveFinding) -> str:
    return f"it has {positive.words} words; at most {positive.limit} tokens of it are read"


_Sentence = Callable[[QueryFinding, PositiveFinding], str]
_SENTENCES: Mapping[str, _Sentence] = {
    "not-in-corpus": lambda query, positive: "the corpus does not hold it",
    "twin-retrieved": _twin,
    "not-offered": lambda query, positive: "not among the documents given to the reranker",
    "demoted": _demoted,
    "query-cut": _query_cut,
    "document-cut": _document_cut,
    "same-source": lambda query, positive: f"{positive.witness} is of the same source",
    "same-subject": _subject,
    "few-shared-terms": _few,
    "surface-match": _surface,
    "outranked": lambda query, positive: (
        f"{_sharing(query, positive)}; the wrong documents of the top {TOP} hold "
        f"{_percent(positive.top_coverage)}"
    ),
}


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
