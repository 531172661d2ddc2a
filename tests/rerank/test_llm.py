"""LLM rerankers: windows, tolerance and counting, with answers that a test gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import DataError, UsageError
from r2med.execution.resources import Resources
from r2med.remote.completions import ChatAnswer, ChatRequest, run_in_step
from r2med.rerank.llm import LlmReranker, Log, Style, Tally, read_prompt
from r2med.rerank.scores import Candidates
from r2med.rerank.styles import build
from r2med.systems.build import read_settings
from r2med.systems.registry import entries


def style(name: str, **options: str) -> Any:
    """The settings of an entry, with a model where it names none."""
    return replace(read_settings(entries()[name].override(options)), llm="gpt4")


LISTWISE, POINTWISE = style("listwise"), style("pointwise")


class Model:
    """Answers as a function does, and remembers what it was asked."""

    def __init__(self, answer: Callable[[str], str | ChatAnswer]) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.requests: list[ChatRequest] = []
        self.batches: list[int] = []

    def __call__(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        prompts = [request.messages[-1].content for request in requests]
        self.asked += prompts
        self.requests += requests
        self.batches.append(len(prompts))
        answers = map(self.answer, prompts)
        return [written(each) if isinstance(each, str) else each for each in answers]


def written(text: str, finish: str = "stop", tokens: int = 10) -> ChatAnswer:
    return ChatAnswer(text, finish, 0, tokens, 0.0, cached=False)


def numbered(count: int, query: str = "which?") -> Candidates:
    names = [f"d{n}" for n in range(count)]
    return Candidates("q", query, names, [f"passage {n}" for n in range(count)])


def orders(
    style: Style,
    model: Model,
    *lists: Candidates,
    tally: Tally | None = None,
    rows: list[dict[str, Any]] | None = None,
) -> list[list[int]]:
    prompt = read_prompt(style.prompt, None)
    logs = [Log(one, 0, tally or Tally(), [] if rows is None else rows) for one in lists]
    rankings = [style.rank(prompt, log) for log in logs]
    return [sorted(range(len(s)), key=lambda n: -s[n]) for s in run_in_step(rankings, model)]


def by_number(prompt: str) -> str:
    """An ideal model that wants high passage numbers first."""
    shown = re.findall(r"^\[(\d+)\] passage (\d+)", prompt, re.MULTILINE)
    return " > ".join(f"[{n}]" for n, _ in sorted(shown, key=lambda pair: -int(pair[1])))


def by_passage(**grades: str) -> Model:
    """Grades by a passage's number, as in p0="3"."""
    return Model(
        lambda prompt: next(g for p, g in grades.items() if f"passage {p[1:]}\n" in prompt)
    )


@given(st.integers(0, 45), st.integers(2, 12), st.data())
def test_sliding_windows_bring_the_best_to_the_top(
    count: int, window: int, data: st.DataObject
) -> None:
    step = data.draw(st.integers(1, max(1, window // 2)))
    asked = replace(LISTWISE, window=window, step=step)

    [order] = orders(asked, Model(by_number), numbered(count))

    kept = min(count, window - step)
    assert order[:kept] == list(range(count))[::-1][:kept]
    assert sorted(order) == list(range(count))


def test_a_list_that_fits_one_window_takes_one_call() -> None:
    model = Model(by_number)

    [order] = orders(LISTWISE, model, numbered(20))

    assert len(model.asked) == 1
    assert order == list(range(20))[::-1]


def test_many_lists_go_up_side_by_side() -> None:
    model = Model(by_number)

    orders(LISTWISE, model, numbered(100), numbered(1), numbered(30))

    assert model.batches == [2, 2, *[1] * 7]


def test_an_answer_that_cannot_be_read_keeps_the_order_and_is_counted() -> None:
    tally = Tally()
    model = Model(lambda prompt: "sorry" if "lost" in prompt else by_number(prompt))

    found = orders(LISTWISE, model, numbered(3), numbered(3, query="lost"), tally=tally)

    assert found == [[2, 1, 0], [0, 1, 2]]
    assert (tally.answers, tally.refused) == (2, 1)


def test_passages_that_an_answer_leaves_out_follow_in_their_order() -> None:
    tally = Tally()

    [order] = orders(LISTWISE, Model(lambda prompt: "[3]"), numbered(4), tally=tally)

    assert order == [2, 0, 1, 3]
    assert tally.partial == 1


def test_grades_decide_and_equal_grades_keep_the_order() -> None:
    model = by_passage(p0="3", p1="9", p2="Score: 9", p3="no")

    assert orders(POINTWISE, model, numbered(4)) == [[1, 2, 0, 3]]


def test_a_passage_without_a_grade_keeps_its_place() -> None:
    tally = Tally()
    model = by_passage(p0="1", p1="what?", p2="5", p3="9")

    assert orders(POINTWISE, model, numbered(4), tally=tally) == [[3, 1, 2, 0]]
    assert tally.unread == 1


def test_braces_in_a_query_stay_as_they_are() -> None:
    model = Model(by_number)

    orders(LISTWISE, model, numbered(2, query="what is {passages}?"))

    assert "Query: what is {passages}?" in model.asked[0]


def test_long_passages_are_cut() -> None:
    model = Model(lambda prompt: "5")

    orders(replace(POINTWISE, words=1), model, numbered(1))

    assert "Passage: passage ...\n" in model.asked[0]


def test_what_would_be_asked_is_known_without_asking() -> None:
    listwise = LlmReranker("l", LISTWISE, Resources())
    pointwise = LlmReranker("p", POINTWISE, Resources())

    assert len(list(listwise.requests([numbered(100), numbered(20)]))) == 10
    assert len(list(pointwise.requests([numbered(100), numbered(20)]))) == 120


def test_a_reranker_without_a_model_says_how_to_name_one() -> None:
    unnamed = replace(POINTWISE, llm="")

    with pytest.raises(UsageError, match="pointwise:gpt4"):
        build("pointwise", unnamed, Resources())


def test_a_step_larger_than_the_window_is_refused() -> None:
    gappy = replace(LISTWISE, window=5, step=6)

    with pytest.raises(UsageError, match="would be skipped"):
        build("listwise", gappy, Resources())


def test_a_prompt_of_the_users_own_replaces_ours(tmp_path: Path) -> None:
    (tmp_path / "pointwise.toml").write_text("user = '{query} / {passage}'", encoding="utf-8")

    own = read_prompt("pointwise", tmp_path)

    assert own.fill("user", query="Q", passage="P") == "Q / P"
    assert own.hash != read_prompt("pointwise", None).hash


@pytest.mark.parametrize(
    ("style", "text", "complaint"),
    [
        (
            "listwise",
            "user = '{query}'\npassage = '{number} {passage}'",
            "and requires {passages}, {query}.",
        ),
        (
            "listwise",
            "user = '{query} {passages}'\npassage = '{passage}'",
            "and requires {number}, {passage}.",
        ),
        ("listwise", "user = '{query} {passages}'", "expected the texts of listwise: "),
        (
            "pointwise",
            "user = '{query} {passage} {hint}'",
            "'user' has the placeholders {hint}, {passage}, {query}; pointwise",
        ),
        ("pointwise", "user = '{query}", "this is not TOML"),
    ],
)
def test_a_broken_prompt_file_is_named(
    tmp_path: Path, style: str, text: str, complaint: str
) -> None:
    (tmp_path / f"{style}.toml").write_text(text, encoding="utf-8")

    with pytest.raises(DataError) as caught:
        read_prompt(style, tmp_path)

    assert f"{style}.toml: " in str(caught.value)
    assert complaint in str(caught.value)


def test_a_prompt_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    text = "user = '{query} {passage} é'"
    (tmp_path / "pointwise.toml").write_bytes(text.encode("latin-1"))

    with pytest.raises(DataError, match=r"pointwise\.toml: this is not TOML in UTF-8"):
        read_prompt("pointwise", tmp_path)
