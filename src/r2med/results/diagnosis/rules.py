"""The rules behind the causes: from the numbers of one missed positive to its cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from r2med.results.diagnosis.causes import BY_CHANCE, FAR_LESS, SAME_SUBJECT, TOP, TWIN


@dataclass(frozen=True)
class Case:
    """All numbers about one positive that the rules read; a `*_witness` names a document."""

    rank: int | None
    in_corpus: bool
    coverage: float
    as_well: float
    top_coverage: float
    likeness: float
    twin_witness: str | None
    subject: float
    subject_witness: str | None
    source_witness: str | None
    surface_witness: str | None
    query_words: int
    words: int
    query_limit: int | None
    limit: int | None
    reranked: int | None
    """How many documents of each list were reranked; None without a reranker."""
    first_stage_rank: int | None


def cause_of(case: Case) -> tuple[str | None, str | None]:
    """The cause and the document that shows it; (None, None) for a positive that is found."""
    if case.rank is not None and case.rank <= TOP:
        return None, None
    for name, holds, witness in _RULES:
        if holds(case):
            return name, witness(case)
    return "outranked", case.surface_witness


def _nobody(case: Case) -> None:
    return None


def _not_offered(case: Case) -> bool:
    return case.reranked is not None and (case.rank is None or case.rank > case.reranked)


def _demoted(case: Case) -> bool:
    return case.first_stage_rank is not None and case.first_stage_rank <= TOP


def _few_terms(case: Case) -> bool:
    if case.coverage == 0 or case.coverage < FAR_LESS * case.top_coverage:
        return True
    return case.as_well >= BY_CHANCE and case.coverage < case.top_coverage


_Rule = tuple[str, Callable[[Case], bool], Callable[[Case], str | None]]
_RULES: tuple[_Rule, ...] = (
    ("not-in-corpus", lambda case: not case.in_corpus, _nobody),
    ("twin-retrieved", lambda case: case.likeness >= TWIN, lambda case: case.twin_witness),
    ("not-offered", _not_offered, _nobody),
    ("demoted", _demoted, _nobody),
    (
        "query-cut",
        lambda case: case.query_limit is not None and case.query_words > case.query_limit,
        _nobody,
    ),
    ("document-cut", lambda case: case.limit is not None and case.words > case.limit, _nobody),
    (
        "same-source",
        lambda case: case.source_witness is not None,
        lambda case: case.source_witness,
    ),
    ("same-subject", lambda case: case.subject >= SAME_SUBJECT, lambda case: case.subject_witness),
    ("few-shared-terms", _few_terms, lambda case: case.surface_witness),
    (
        "surface-match",
        lambda case: case.coverage < case.top_coverage,
        lambda case: case.surface_witness,
    ),
)
