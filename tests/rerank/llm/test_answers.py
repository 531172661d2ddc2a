"""Answers are read in whatever form a model gives them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.rerank.llm.answers import read_grade, read_order


@pytest.mark.parametrize(
    ("answer", "order"),
    [
        ("[2] > [1] > [3]", [1, 0, 2]),
        ("2 > 1 > 3", [1, 0, 2]),
        ("```json\n[3, 1, 2]\n```", [2, 0, 1]),
        ("1. [3]\n2. [1]\n3. [2]", [2, 0, 1]),
        ("The most helpful passage is [3], then [1].", [2, 0]),
        ("[2] > [2] > [9] > [0] > [1]", [1, 0]),
        ("<think>[1] looks good, but [3]...</think>[3] > [2] > [1]", [2, 1, 0]),
        ("<think>[1] looks good, but", None),
        ("I cannot help with that.", None),
        ("", None),
        ("[17]", None),
    ],
)
def test_an_order_is_read(answer: str, order: list[int] | None) -> None:
    assert read_order(answer, 3) == order


@pytest.mark.parametrize(
    ("answer", "grade"),
    [
        ("7", 7),
        ("10", 10),
        (" 0.", 0),
        ("7.5", 7.5),
        ("8/10", 8),
        ("9 out of 10", 9),
        ("Score: 6", 6),
        ("**Grade:** 4 because of 3 reasons", 4),
        ("On a scale of 0 to 10 the relevance is 5", 5),
        ("Yes, it helps.", 10),
        ("no", 0),
        ("<think>maybe 3</think>\n\n8", 8),
        ("<think>maybe 3", None),
        ("Published in 1998.", None),
        ("-", None),
        ("", None),
    ],
)
def test_a_grade_is_read(answer: str, grade: float | None) -> None:
    assert read_grade(answer) == grade


@settings(deadline=None)
@given(st.text(), st.integers(1, 30))
def test_no_answer_breaks_the_reading(answer: str, count: int) -> None:
    order, grade = read_order(answer, count), read_grade(answer)

    assert order is None or (len(set(order)) == len(order) and set(order) <= set(range(count)))
    assert grade is None or 0 <= grade <= 10
