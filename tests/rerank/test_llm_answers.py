"""Answers are read in whatever form a model gives them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.rerank.llm_answers import read_grade, read_order, read_scores, split_thought


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
        ("I cannot rank these 3 passages.", None),
        ("[" + "9" * 5000 + "] > [2]", [1]),
    ],
)
def test_an_order_is_read(answer: str, order: list[int] | None) -> None:
    found = read_order(split_thought(answer)[1], 3)

    assert (found and found.indexes) == order


@pytest.mark.parametrize(
    ("answer", "thought", "conclusion"),
    [
        ("<think>first [1]</think> <answer>[3] > [1]</answer>", "first [1]", "[3] > [1]"),
        ("first [1]</think>[3]", "first [1]", "[3]"),
        ("<think>first [1]", "first [1]", ""),
        ("<think>first [1] <answer>[3] > [2]</answer>", "first [1]", "[3] > [2]"),
        ("I think so. <answer>[2]", "I think so.", "[2]"),
        ("<reason> good </reason>\n<answer>\n{}\n</answer>", "good", "{}"),
        ("<think>a</think>b</think>[2]", "ab", "[2]"),
        ("[2] > [1]", "", "[2] > [1]"),
        ("", "", ""),
    ],
)
def test_thought_and_conclusion_are_told_apart(answer: str, thought: str, conclusion: str) -> None:
    assert split_thought(answer) == (thought, conclusion)


@pytest.mark.parametrize(
    ("answer", "places", "repeated", "invented"),
    [
        ("[2] > [1] > [3]", [1, 0, 2], False, False),
        ("[2] > [2] > [1] > [3]", [1, 0, 2], True, False),
        ("[2] = [3] > [1]", [1, 2, 0], False, False),
        (" > ".join(f"[{n}]" for n in range(1, 31)), [0, 1, 2], False, True),
        ("[0] > [3] > [3]", [2], True, True),
    ],
)
def test_one_rule_mends_every_permutation(
    answer: str, places: list[int], repeated: bool, invented: bool
) -> None:
    assert read_order(answer, 3) == (places, repeated, invented)


@pytest.mark.parametrize(
    ("answer", "scores"),
    [
        ('```json\n{"[1]": 5, "[2]": 3, "[3]": 8}\n```', {0: 5, 1: 3, 2: 8}),
        ('{"[1]": 5, "[2]": 3', {0: 5, 1: 3}),
        ('{"[1]]": 5, "2": "7.5"}', {0: 5, 1: 7.5}),
        ('{"[1]": 5, "[1]": 9, "[2]": 11, "[30]": 4}', {0: 5}),
        ("[1]: 10\n[2]: 0", {0: 10, 1: 0}),
        ("The best is [2].", None),
        ('The highest score is "2:3", seen at 10:30.', None),
        ("", None),
    ],
)
def test_scores_are_read_as_far_as_they_go(answer: str, scores: dict[int, float] | None) -> None:
    found = read_scores(answer, 3)

    assert (found and found[0]) == scores


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
        ("on a scale of 0 to 10: 8", 8),
        ("On a scale of 0 to 10, I would give this passage a 7.", 7),
        ("out of 10: 3", 3),
        ("Out of 10, I'd rate it 4.", 4),
        ("Score: 7.5", 7.5),
        ("Relevance (0-10): 4", 4),
        ("Score (0–10): 7.5/10", 7.5),
        ("[8]", 8),
        ("\\boxed{8}", 8),
        ('{"score": 8}', 8),
        ('{"relevance": 6.5, "reason": "covers 2 of 3 aspects"}', 6.5),
        ("**8**", 8),
        ("8 (out of 10)", 8),
        ("<score>8</score>", 8),
        ("Rating: 8.5/10", 8.5),
        ("I would rate this passage 6 out of 10.", 6),
        ("I'd give it a 9.", 9),
        ("10/10", 10),
        ("Grade - 5", 5),
        ("Score = 10", 10),
        ("7 - partially relevant, covers 2 of 3 aspects", 7),
        ("The passage mentions 3 trials with 120 patients.\nScore: 2", 2),
        ("Step 1 relevance: 8. Step 2 relevance: 3.\nFinal score: 5", 5),
        ("Overall, I would give 6.", 6),
        ("7-8", None),
        ("between 6 and 7", None),
        ("Score: 6 to 7", None),
        ("11", None),
        ("Score: 85/100", None),
        ("80%", None),
        ("4/5", None),
        ("Eight", 8),
        ("seven.", 7),
        ("I cannot grade this passage from 0 to 10.", None),
        ("The answer is 3.", 3),
        ("Type 2 diabetes is discussed, but no treatment.", None),
        ("10 out of 10 patients improved.\n\nGrade: 1", 1),
        ("Score: -3", None),
        ("Grade: 0 (the passage is about 10 other diseases)", 0),
        ("0 - it does not help", 0),
        ("Vitamin B12 and 3 other causes are named; score 4", 4),
        ("Not relevant.", None),
        ("The relevance score is 9.", 9),
        ("Relevance score: 3/10\nConfidence: 90%", 3),
        ("I grade this passage as 2.", 2),
        ("Grade: **9**.", 9),
        ("5\n\nThe passage explains the mechanism but names no drug.", 5),
        ("Score: 6\nExplanation: a score of 10 would need the diagnosis.", 6.0),
        ("Ten out of ten", 10),
        ("7,5", 7.5),
        ("3.", 3),
        ("Score:8", 8),
        ("10.0", 10),
        ("0/10", 0),
        ("1998", None),
        ("The score is 8 out of 10 because it names the drug.", 8),
        ("Answer: 7", 7),
        ("a 10-point scale: 6", 6),
        ("On a scale from 0 (does not help) to 10 (answers it), 7", 7),
        ('"4"', 4),
        ("- 6", 6),
        ("Score 7 of 10", 7),
        ("Score: 6, no: score: 8", None),
        ("4 or 5", None),
    ],
)
def test_a_grade_is_read(answer: str, grade: float | None) -> None:
    assert read_grade(split_thought(answer)[1]) == grade


@settings(deadline=None)
@given(st.text(), st.integers(1, 30))
def test_no_answer_breaks_the_reading(answer: str, count: int) -> None:
    said = split_thought(answer)[1]
    order, grade, scores = read_order(said, count), read_grade(said), read_scores(said, count)

    for each in (order, scores and scores[1]):
        assert each is None or sorted(each.indexes) == sorted(set(each.indexes) & set(range(count)))
    assert grade is None or 0 <= grade <= 10
