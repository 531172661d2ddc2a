from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.results.diagnosis.causes import CAUSES, TOP, PositiveFinding

MISSED = PositiveFinding(
    rank=40,
    in_corpus=True,
    coverage=0.3,
    as_well=0.05,
    top_coverage=0.3,
    likeness=0.0,
    subject=0.0,
    witnesses={"outranked": "decoy"},
    query_terms=9,
    query_words=100,
    words=100,
    query_limit=None,
    limit=None,
    reranked=None,
    first_stage_rank=None,
    document_id="positive",
    relevance=1,
    shared_terms=3,
)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"in_corpus": False}, "not-in-corpus"),
        ({"likeness": 0.8}, "twin-retrieved"),
        ({"reranked": 30}, "not-offered"),
        ({"reranked": 30, "rank": None}, "not-offered"),
        ({"reranked": 100, "first_stage_rank": 10}, "demoted"),
        ({"query_limit": 99}, "query-cut"),
        ({"limit": 99}, "document-cut"),
        ({"witnesses": {"same-source": "other"}}, "same-source"),
        ({"subject": 0.2}, "same-subject"),
        ({"coverage": 0.09}, "few-shared-terms"),
        ({"coverage": 0.0, "top_coverage": 0.0}, "few-shared-terms"),
        ({"coverage": 0.2, "as_well": 0.3}, "few-shared-terms"),
        ({"coverage": 0.2}, "surface-match"),
        ({}, "outranked"),
    ],
)
def test_each_cause_follows_from_its_numbers(change: dict[str, object], cause: str) -> None:
    assert replace(MISSED, **change).with_cause().cause == cause  # type: ignore[arg-type]


def test_limits_that_are_just_kept_cut_nothing() -> None:
    assert replace(MISSED, query_limit=100, limit=100).with_cause().cause == "outranked"


def test_the_witness_is_the_document_that_shows_the_cause() -> None:
    witnesses = {"twin-retrieved": "twin", "same-source": "other"}
    case = replace(MISSED, likeness=0.9, witnesses=witnesses).with_cause()

    assert (case.cause, case.witness) == ("twin-retrieved", "twin")


shares = st.floats(0, 1)
names = st.none() | st.sampled_from(["a", "b"])
cases = st.builds(
    PositiveFinding,
    rank=st.none() | st.integers(1, 200),
    in_corpus=st.booleans(),
    coverage=shares,
    as_well=shares,
    top_coverage=shares,
    likeness=shares,
    subject=shares,
    witnesses=st.dictionaries(st.sampled_from([*CAUSES]), names),
    query_terms=st.integers(0, 90),
    query_words=st.integers(0, 900),
    words=st.integers(0, 900),
    query_limit=st.none() | st.integers(1, 900),
    limit=st.none() | st.integers(1, 900),
    reranked=st.none() | st.integers(1, 200),
    first_stage_rank=st.none() | st.integers(1, 200),
    document_id=st.just("positive"),
    relevance=st.integers(1, 3),
    shared_terms=st.integers(0, 90),
)


@given(cases.map(PositiveFinding.with_cause))
def test_a_positive_has_a_known_cause_exactly_when_it_is_missed(case: PositiveFinding) -> None:
    found = case.rank is not None and case.rank <= TOP
    assert (case.cause is None) == found
    assert case.cause is None or case.cause in CAUSES
