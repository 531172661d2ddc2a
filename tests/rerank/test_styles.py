"""Rerankers that think: what they are asked, and what becomes of the answers such models write."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.execution.resources import Resources
from r2med.remote.completions import ChatAnswer
from r2med.rerank.llm import LlmReranker, Tally
from r2med.rerank.scores import Candidates
from tests.rerank.test_llm import Model, by_number, numbered, orders, style, written

REASONRANK, RANK1, RANK_R1, GROUPRANK, INSERTRANK = map(
    style, ("reasonrank", "rank1", "rank-r1", "grouprank", "insertrank")
)


def thinking(answer: str) -> str:
    return f"<think>Passage [1] looks good, but [2] is better.</think>\n<answer>{answer}</answer>"


def shown(prompt: str) -> list[int]:
    """The numbers of the passages in a prompt, in order."""
    return [int(number) for number in re.findall(r"^\[\d+\]\.? passage (\d+)", prompt, re.M)]


def highest(prompt: str) -> str:
    """A model that thinks, then names the passage with the highest number."""
    passages = shown(prompt)
    return thinking(f"[{passages.index(max(passages)) + 1}]")


def scoring(prompt: str) -> str:
    """A model that scores passages by their number."""
    rows = ", ".join(f'"[{n}]": {p % 11}' for n, p in enumerate(shown(prompt), start=1))
    return f"<reason>\nLet me see.\n</reason>\n<answer>\n```json\n{{{rows}}}\n```\n</answer>"


def test_reasonrank_orders_windows_of_20_by_steps_of_10_after_thinking() -> None:
    tally, model = Tally(), Model(lambda prompt: thinking(by_number(prompt)))

    [order] = orders(REASONRANK, model, numbered(100), tally=tally)

    assert order[:10] == list(range(99, 89, -1))
    assert [len(shown(prompt)) for prompt in model.asked] == [20] * 9
    assert [m.role for m in model.requests[0].messages] == ["system", "user"]
    assert (tally.answers, tally.thoughts, tally.malformed, tally.partial) == (9, 9, 0, 0)


def test_thoughts_are_stripped_kept_and_counted() -> None:
    tally, rows = Tally(), list[dict[str, Any]]()
    text = "<think>aaaaaaaa</think><answer>[2]</answer>"

    orders(
        REASONRANK, Model(lambda _: written(text, tokens=11)), numbered(2), tally=tally, rows=rows
    )

    assert (tally.thoughts, tally.thought_tokens) == (1, 8)
    [row] = rows
    assert (row["thought"], row["answer"], row["read"]) == ("aaaaaaaa", "[2]", [1])
    assert (row["query_id"], row["documents"]) == ("q", ["d0", "d1"])


def test_what_the_server_took_for_a_thought_is_one() -> None:
    tally = Tally()
    answer = replace(written("[2] > [1]"), reasoning="let me see")

    [order] = orders(REASONRANK, Model(lambda _: answer), numbered(2), tally=tally)

    assert (order, tally.thoughts) == ([1, 0], 1)


def test_a_thought_that_the_limit_cut_orders_nothing_and_is_counted() -> None:
    tally = Tally()
    cut = written("<think>[3] is better than [2], and", "length")

    [order] = orders(REASONRANK, Model(lambda _: cut), numbered(3), tally=tally)

    assert order == [0, 1, 2]
    assert (tally.cut, tally.truncated) == (1, 1)


def test_a_permutation_that_repeats_misses_or_invents_is_mended_and_counted() -> None:
    tally = Tally()
    answers = {
        "first": " > ".join(f"[{n}]" for n in range(30, 0, -1)),
        "second": "[3] > [3] > [1] > [2]",
        "third": "[2]",
    }
    model = Model(lambda prompt: next(a for query, a in answers.items() if query in prompt))

    found = orders(
        REASONRANK,
        model,
        numbered(20, "first"),
        numbered(3, "second"),
        numbered(3, "third"),
        tally=tally,
    )

    assert found == [list(range(19, -1, -1)), [2, 0, 1], [1, 0, 2]]
    assert (tally.invented, tally.repeated, tally.partial, tally.malformed) == (1, 1, 1, 3)


def test_numbers_in_brackets_of_a_text_are_not_numbers_of_passages() -> None:
    model = Model(by_number)

    orders(REASONRANK, model, Candidates("q", "see [4]", ["a", "b"], ["as in [12]", "none"]))

    assert "[1] as in (12)\n[2] none\nSearch Query: see (4)." in model.asked[0]


def odds(**probabilities: float) -> Model:
    """Rank1 on a server: a thought for a prompt, alternatives for a closed thought."""

    def answer(prompt: str) -> ChatAnswer:
        if not prompt.endswith("</think>"):
            return written(" It fits. And then", "length" if "passage 1" in prompt else "stop")
        p = next(p for name, p in probabilities.items() if f"passage {name[1:]}\n" in prompt)
        alternatives = {" true": math.log(p), " false": math.log(1 - p), " maybe": -9.0}
        return replace(written(" true"), alternatives=alternatives)

    return Model(answer)


def test_rank1_orders_by_the_probability_of_true_after_the_thought() -> None:
    tally, model = Tally(), odds(p0=0.2, p1=0.999, p2=0.9999999, p3=0.5)

    [order] = orders(RANK1, model, numbered(4), tally=tally)

    assert order == [2, 1, 3, 0]
    assert (tally.answers, tally.thoughts, tally.malformed) == (4, 4, 0)
    assert {m.role for request in model.requests for m in request.messages} == {"bare"}
    assert model.asked[0].endswith("Query: which?\nPassage: passage 0\n<think>")


def test_a_cut_thought_is_closed_after_its_last_sentence_and_judged() -> None:
    tally, model = Tally(), odds(p0=0.5, p1=0.9)

    [order] = orders(RANK1, model, numbered(2), tally=tally)

    assert (order, tally.cut) == ([1, 0], 1)
    assert model.asked[2].endswith("<think> It fits. And then</think>")
    assert model.asked[3].endswith("<think>\nIt fits.\n</think>")
    assert [request.max_tokens for request in model.requests] == [None, None, 1, 1]


@pytest.mark.parametrize(
    ("alternatives", "order", "unread"),
    [
        ({"True": -0.1, "x": -3.0}, [1, 0], 0),
        ({" false": -0.1, "x": -3.0}, [0, 1], 0),
        ({"x": -0.1}, [0, 1], 1),
        (None, [0, 1], 1),
    ],
)
def test_a_word_that_is_no_alternative_is_as_likely_as_the_least(
    alternatives: dict[str, float] | None, order: list[int], unread: int
) -> None:
    even, tally = {"true": -1.0, "false": -1.0}, Tally()
    answers = {"passage 0\n": even, "passage 1\n": alternatives}

    def answer(prompt: str) -> ChatAnswer:
        found = next(a for text, a in answers.items() if text in prompt)
        return replace(written("so."), alternatives=found)

    assert orders(RANK1, Model(answer), numbered(2), tally=tally) == [order]
    assert tally.unread == unread


@settings(max_examples=30)
@given(st.integers(0, 45), st.integers(2, 21), st.integers(1, 12))
def test_choosing_the_best_of_sets_sorts_the_top(count: int, window: int, top: int) -> None:
    tally, model = Tally(), Model(highest)
    asked = replace(RANK_R1, window=window, top=top)

    [order] = orders(asked, model, numbered(count), tally=tally)

    best = list(range(count))[::-1][:top]
    assert order == [*best, *range(count - len(best))]
    assert all(len(shown(prompt)) <= window for prompt in model.asked)
    assumed_answer = list(LlmReranker("r", asked, Resources()).requests([numbered(count)]))
    assert len(assumed_answer) >= len(model.asked) or count < 3


def test_a_set_whose_best_is_not_named_leaves_its_first_document_on_top() -> None:
    tally = Tally()

    [order] = orders(RANK_R1, Model(lambda _: "none of them"), numbered(4), tally=tally)

    assert sorted(order) == [0, 1, 2, 3] and order[0] == 0
    assert tally.unread == tally.answers


def test_grouprank_averages_scores_of_shuffled_groups_over_rounds() -> None:
    tally, model = Tally(), Model(scoring)

    [order] = orders(GROUPRANK, model, numbered(30), tally=tally)

    assert order == sorted(range(30), key=lambda n: -(n % 11))
    groups = [shown(prompt) for prompt in model.asked]
    assert [len(group) for group in groups] == [20, 10, 20, 10]
    assert sorted(groups[0] + groups[1]) == sorted(groups[2] + groups[3]) == list(range(30))
    assert groups[0] != sorted(groups[0]) and groups[0] != groups[2]
    assert (tally.answers, tally.thoughts, tally.malformed) == (4, 4, 0)


def test_the_same_seed_shuffles_alike_and_another_one_does_not() -> None:
    same, again, other = Model(scoring), Model(scoring), Model(scoring)

    orders(GROUPRANK, same, numbered(30))
    orders(GROUPRANK, again, numbered(30))
    orders(replace(GROUPRANK, seed=7), other, numbered(30))

    assert same.asked == again.asked
    assert same.asked != other.asked


def test_a_group_that_cannot_be_read_scores_0_and_a_score_left_out_is_not_averaged() -> None:
    tally, answers = Tally(), iter(['{"[1]": 4, "[2]": 8}', "sorry", '{"[1]": 6}'])
    asked = replace(GROUPRANK, group=2, rounds=3)
    rows: list[dict[str, Any]] = []

    [order] = orders(asked, Model(lambda _: next(answers)), numbered(2), tally=tally, rows=rows)

    means = {"d0": [0.0], "d1": [0.0]}
    for row in rows:
        for place, score in row["read"] or []:
            means[row["documents"][place]].append(score)
    best = max(means, key=lambda name: sum(means[name]) / len(means[name]))
    assert f"d{order[0]}" == best
    assert (tally.refused, tally.partial) == (1, 1)


def test_insertrank_shows_the_scores_of_the_first_stage() -> None:
    model = Model(lambda _: "[2] > [1]")
    one = Candidates("q", "which?", ["a", "b"], ["first", "second"], [12.345, 0.5])

    assert orders(INSERTRANK, model, one) == [[1, 0]]
    assert "[1] (search score 12.35) first\n\n[2] (search score 0.50) second" in model.asked[0]


def test_of_several_samples_the_mean_place_decides() -> None:
    asked = replace(REASONRANK, samples=3)
    reranker = LlmReranker("r", asked, Resources())
    votes = {0: "[1] > [2] > [3]", 1: "[3] > [1] > [2]", 2: "[3] > [2] > [1]"}

    def ask(requests: Any) -> list[ChatAnswer]:
        return [written(votes[request.sample]) for request in requests]

    [scores] = reranker._rank_lists([numbered(3)], ask, Tally(), [])

    assert scores.argsort()[::-1].tolist() == [2, 0, 1]
