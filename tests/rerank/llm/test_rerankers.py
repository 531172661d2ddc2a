"""LLM rerankers: windows, tolerance and counting, with a model that answers by a script."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.errors import DataError
from r2med.rerank.llm.listwise import ListwiseReranker
from r2med.rerank.llm.pointwise import PointwiseReranker
from r2med.retrieve.conditions import Conditions
from tests.rerank.llm.scripted import Scripted, numbered, order_of


def by_number(prompt: str) -> str:
    """An ideal model that wants high passage numbers first."""
    shown = re.findall(r"^\[(\d+)\] passage (\d+)", prompt, re.MULTILINE)
    return " > ".join(f"[{n}]" for n, _ in sorted(shown, key=lambda pair: -int(pair[1])))


@settings(deadline=None)
@given(st.integers(0, 45), st.integers(2, 12), st.data())
def test_sliding_windows_bring_the_best_to_the_top(
    count: int, window: int, data: st.DataObject
) -> None:
    step = data.draw(st.integers(1, max(1, window // 2)))
    reranker = ListwiseReranker("l", Scripted(by_number), Conditions(), window=window, step=step)

    (scores,) = reranker.scores([numbered(count)])

    kept = min(count, window - step)
    assert order_of(scores.tolist())[:kept] == list(range(count))[::-1][:kept]
    assert sorted(scores.tolist()) == [float(n + 1) for n in range(count)]


def test_a_list_that_fits_one_window_takes_one_call() -> None:
    model = Scripted(by_number)

    scores = ListwiseReranker("l", model, Conditions(), window=20, step=10).scores([numbered(20)])

    assert len(model.asked) == 1
    assert order_of(scores[0].tolist()) == list(range(20))[::-1]


def test_depth_100_takes_nine_windows_of_20_by_10() -> None:
    model = Scripted(by_number)

    ListwiseReranker("l", model, Conditions(), window=20, step=10).scores([numbered(100)])

    assert len(model.asked) == 9


def test_an_answer_that_cannot_be_read_keeps_the_order_and_is_counted() -> None:
    told: list[str] = []
    model = Scripted(lambda prompt: "sorry" if "lost" in prompt else by_number(prompt))
    reranker = ListwiseReranker("l", model, Conditions(tell=told.append))

    scores = reranker.scores([numbered(3), numbered(3, query="lost")])

    assert [order_of(one.tolist()) for one in scores] == [[2, 1, 0], [0, 1, 2]]
    assert (reranker.facts()["answers"], reranker.facts()["malformed"]) == (2, 1)
    assert told == ["l: 1 of 2 answers could not be read; the first stage's order was kept there."]


def test_passages_that_an_answer_leaves_out_follow_in_their_order() -> None:
    reranker = ListwiseReranker("l", Scripted(lambda prompt: "[3]"), Conditions())

    (scores,) = reranker.scores([numbered(4)])

    assert order_of(scores.tolist()) == [2, 0, 1, 3]
    assert reranker.facts()["partial"] == 1


def test_grades_decide_and_equal_grades_keep_the_order() -> None:
    grades = {"passage 0": "3", "passage 1": "9", "passage 2": "Score: 9", "passage 3": "no"}
    model = Scripted(lambda prompt: next(g for p, g in grades.items() if p in prompt))

    (scores,) = PointwiseReranker("p", model, Conditions()).scores([numbered(4)])

    assert order_of(scores.tolist()) == [1, 2, 0, 3]


def test_a_passage_without_a_grade_keeps_its_place() -> None:
    grades = {"passage 0": "1", "passage 1": "what?", "passage 2": "5", "passage 3": "9"}
    model = Scripted(lambda prompt: next(g for p, g in grades.items() if p in prompt))
    reranker = PointwiseReranker("p", model, Conditions())

    (scores,) = reranker.scores([numbered(4)])

    assert order_of(scores.tolist()) == [3, 1, 2, 0]
    assert reranker.facts()["malformed"] == 1


def test_costs_are_in_the_facts() -> None:
    reranker = PointwiseReranker("p", Scripted(lambda prompt: "5"), Conditions())

    reranker.scores([numbered(3)])

    assert reranker.facts() == {
        "texts": 3,
        "calls": 3,
        "tokens": 21,
        "money": 0.5,
        "answers": 3,
        "malformed": 0,
        "partial": 0,
    }


def test_braces_in_a_query_stay_as_they_are() -> None:
    model = Scripted(by_number)

    ListwiseReranker("l", model, Conditions()).scores([numbered(2, query="what is {passages}?")])

    assert "Query: what is {passages}?" in model.asked[0]


def test_long_passages_are_cut() -> None:
    model = Scripted(lambda prompt: "5")

    PointwiseReranker("p", model, Conditions(), words=1).scores([numbered(1)])

    assert "Passage: passage ...\n" in model.asked[0]


def test_a_prompt_of_the_users_own_replaces_ours_and_is_another_system(tmp_path: Path) -> None:
    (tmp_path / "pointwise.txt").write_text("{query} / {passage}", encoding="utf-8")
    model = Scripted(lambda prompt: "5")
    own = PointwiseReranker("p", model, Conditions(prompts=tmp_path))

    own.scores([numbered(1)])

    assert model.asked == ["which? / passage 0"]
    assert own.identity != PointwiseReranker("p", model, Conditions()).identity


def test_a_prompt_without_its_places_is_refused(tmp_path: Path) -> None:
    (tmp_path / "listwise.txt").write_text("order them: {query}", encoding="utf-8")

    with pytest.raises(DataError, match=r"listwise\.txt: the place \{passages\} is missing"):
        ListwiseReranker("l", Scripted(by_number), Conditions(prompts=tmp_path))


def test_a_prompt_with_a_place_that_is_never_filled_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pointwise.txt").write_text("{query} {passage} {hint}", encoding="utf-8")

    with pytest.raises(DataError, match=r"pointwise\.txt: \{hint\} is never filled in"):
        PointwiseReranker("p", Scripted(by_number), Conditions(prompts=tmp_path))


def test_a_prompt_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "pointwise.txt").write_bytes("{query} {passage} é".encode("latin-1"))

    with pytest.raises(DataError, match=r"pointwise\.txt"):
        PointwiseReranker("p", Scripted(by_number), Conditions(prompts=tmp_path))
