"""Verdicts on figures, and reasons for what differs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import UsageError
from r2med.evaluation.reproduce import (
    compare_with_published,
    find_published,
    judge_difference,
    use_published_generations,
)
from r2med.results.published import Printed
from r2med.results.published_data import describe_other_data
from r2med.results.standings import measured_value, tie_range
from r2med.runs import Run
from r2med.tasks.registry import find_task
from tests.building import judgements_of
from tests.results.storing import ranks, store, store_run

ROOT = Path("kept")


@given(st.floats(0, 1))
def test_a_figure_equals_its_own_rounding(value: float) -> None:
    assert judge_difference(value, round(value, 5), 5) == "equal"


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (0.191880, "equal"),
        (0.191885, "equal"),
        (0.191900, "close"),
        (0.196800, "close"),
        (0.198000, "different"),
    ],
)
def test_verdicts_by_distance(ours: float, expected: str) -> None:
    assert judge_difference(ours, 0.19188, 5) == expected


def published(value: float, task: str = "Biology") -> Printed:
    figures = {task: {"ndcg@10": value, "recall@10": 1.0, "map@1000": 0.5}}
    return Printed("bm25", "base", (), 5, figures=figures, origins={task: "here"})


def test_an_equal_figure_needs_no_reason() -> None:
    result = store(ROOT, "bm25", "Biology", ranks(1, 1))

    found = compare_with_published(result, published(1.0), "ndcg@10", ties=(1.0, 1.0))

    assert (found.verdict, found.difference, found.reasons) == ("equal", 0.0, ())


def test_peculiarities_of_the_published_protocol_are_no_reasons() -> None:
    result = store(ROOT, "bm25", "Biology", ranks(1, 1))

    found = compare_with_published(result, published(0.5), "ndcg@10", ties=(1.0, 1.0))

    assert found.verdict == "different"
    assert found.reasons == ()  # bm25 is the published protocol: nothing here deviates from it


def test_only_deviations_from_the_published_system_are_reasons() -> None:
    result = store(ROOT, "grit", "Biology", ranks(1, 1))

    found = compare_with_published(result, published(0.5), "ndcg@10", ties=(1.0, 1.0))

    assert any("grit: the gritlm library" in reason for reason in found.reasons)


def test_a_difference_within_the_tie_bounds_is_laid_to_ties() -> None:
    result = store(ROOT, "bm25", "Biology", ranks(1, 1))

    found = compare_with_published(result, published(0.9), "ndcg@10", ties=(0.8, 1.0))

    assert "the order of equal scores alone moves Biology from 80.00 to 100.00" in found.reasons


def test_other_data_is_said_even_when_figures_are_equal() -> None:
    result = store(
        ROOT, "bm25", "Biology", ranks(1, 1), differences=("documents 3 instead of 57,359",)
    )

    found = compare_with_published(result, published(1.0), "ndcg@10", ties=None)

    assert found.verdict == "equal"
    assert "documents 3 instead of" in found.reasons[0]


def test_a_folder_of_a_contrast_collection_meets_its_published_figures() -> None:
    result = store(ROOT, "bm25", "nfcorpus", ranks(1), suite=None)

    found = compare_with_published(result, published(1.0, "NFCorpus"), "ndcg@10", ties=None)

    assert (found.verdict, found.reasons[0]) == (
        "equal",
        "nfcorpus is a local task, not verified data",
    )


@pytest.mark.parametrize(
    ("text", "suite", "spec"),
    [
        ("bm25", "full", "bm25"),
        ("BM25", "full", "bm25"),
        ("nv|rankllama@100", "full", "nv | rankllama@100"),
        ("NV | RankLlama@100", "full", "nv | rankllama@100"),
        ("hyde:gpt4[generations=published] | nv", "full", "hyde:gpt4 | nv"),
        ("bm25-nano", "nano", "candidates:bm25"),
        ("candidates:reranking_hybrid", "nano", "candidates:reranking_hybrid"),
    ],
)
def test_a_text_finds_the_published_system_it_runs(text: str, suite: str, spec: str) -> None:
    assert find_published(text, suite).system == spec


@pytest.mark.parametrize(
    ("text", "suite", "told"),
    [
        ("bm25[k1=2]", "full", "options change the published protocol"),
        ("nv | rankllama@50", "full", "Did you mean 'nv | rankllama@10'"),
        ("bm25", "demo", "No figures are published for the demo suite"),
    ],
)
def test_what_was_not_published_is_refused_with_a_way_out(text: str, suite: str, told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        find_published(text, suite)


def test_a_retriever_runs_as_it_is_written() -> None:
    assert use_published_generations("bm25") == "bm25"


def test_tie_bounds_are_micro_where_the_metric_is() -> None:
    judged = judgements_of({"q1": {"a": 1}, "q2": {"b": 1, "c": 1, "d": 1}})
    lists = {"q1": [("x", 1.0), ("a", 1.0)], "q2": [("b", 2.0), ("y", 1.0), ("c", 1.0)]}
    result = store_run(ROOT, "bm25", "NanoR2MEDBiology", Run.from_lists(lists), judged)

    low, high = tie_range(result, judged, "recall@1")

    assert (low, high) == (1 / 4, 2 / 4)
    assert measured_value(result, "recall@1") in (low, high)


def test_results_of_an_earlier_edition_show_as_describe_other_data() -> None:
    entry = find_task("demo/biology")
    now = store(ROOT, "bm25", "demo/biology", ranks(1), data=str(entry.data))
    before = store(ROOT, "bm25-nano", "demo/biology", ranks(1), data="of the first edition")

    assert describe_other_data(now) is None
    assert entry.edition is not None
    assert f"other data than edition {entry.edition}" in str(describe_other_data(before))
