"""Rubrics are validated data, and one reader takes the grades from any form of answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import DataError, MissingError, UsageError
from r2med.judge.grades import read_grades
from r2med.judge.rubric import find_rubric, rubric_names

GRADED = find_rubric("graded")
REASONING = find_rubric("reasoning")


def test_the_package_has_two_rubrics() -> None:
    assert rubric_names() == ["graded", "reasoning"]
    assert GRADED.scale == REASONING.scale == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("scores", "relevant"),
    [((3, 3), True), ((3, 2), None), ((2, 2), None), ((3, 1), False), ((0, 3), False)],
)
def test_both_scores_must_be_high_and_the_middle_is_undecided(
    scores: tuple[int, int], relevant: bool | None
) -> None:
    grade = REASONING.grade_of({"answer": scores[0], "reasoning": scores[1]})

    assert REASONING.is_relevant(grade) is relevant


def test_texts_are_filled_in_once_so_braces_in_a_text_stay() -> None:
    texts = {"query": "what is {passage}?", "passage": "a {query} {unknown}"}

    user = GRADED.messages(texts)[-1].content

    assert "what is {passage}?" in user and "a {query} {unknown}" in user
    assert '{"match": 0' in user


def test_a_required_text_that_is_empty_is_an_error() -> None:
    with pytest.raises(DataError, match="'answer' is missing or empty"):
        REASONING.messages({"query": "q", "answer": " ", "passage": "p"})
    assert REASONING.messages({"query": "q", "answer": "a", "passage": "p"})


FORMS = [
    '{"match": 2, "trustworthiness": 3, "overall": 2}',
    'Intent: know.\n```json\n{"match": 1, "overall": 2,}\n```',
    "{'match': '1', 'trustworthiness': 'two', 'overall': 'two'}",
    "The format is {\"overall\": 0}. My answer: {'overall': 2, 'rationale': 'it answers'}",
    "Match: 1\nTrustworthiness: 3\nOverall: 2",
    "**Overall:** 2/3",
    "##final overall score: 2",
    "M: 3\nT: 1\nO: 2",
    "overall (0 to 3): 2",
    "<think>overall: 0, or perhaps 3</think> overall = 2",
    "overall: 3\nOn reflection, final overall: 2",
    "2",
    " 2. ",
    "two",
    "<answer>2</answer>",
    "The overall score is 2 out of 3",
    "| overall | 2 |",
    "2 = well",
    "2: it helps",
    "2. The passage helps.",
    "Score: 2/3",
    "I would give it a grade of 2",
    "**Answer: 2**",
]


@pytest.mark.parametrize("text", FORMS)
def test_grades_are_read_in_every_form(text: str) -> None:
    reading = read_grades(text, GRADED)

    assert reading.problem == "" and reading.scores["overall"] == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("<think>overall: 2", "empty"),
        ("I'm sorry, but I can't help with that.", "refused"),
        ("The passage is about ducks.", "missing"),
        ("2 = not at all, 3", "missing"),
        ("1: no, 2: yes", "missing"),
        ("It names 2 of the signs", "missing"),
        ("overall (0 to 3)", "missing"),
        ("overall: 1\noverall: 3", "contradictory"),
        ('{"overall": 4}', "off the scale"),
        ('{"overall": -1}', "off the scale"),
        ("overall: 1.5", "off the scale"),
        ('{"overall": Infinity}', "off the scale"),
        ('{"overall": NaN}', "off the scale"),
        ('{"overall": true}', "missing"),
        ('{"overall": null}', "missing"),
        ('{"match": 2}', "missing"),
        ("{" * 5000, "missing"),
    ],
)
def test_an_unreadable_answer_says_why(text: str, problem: str) -> None:
    assert read_grades(text, GRADED).problem == problem


def test_a_grade_of_several_scores_needs_all_of_them() -> None:
    assert read_grades("answer: 3", REASONING).problem == "missing"
    assert read_grades("3", REASONING).problem == "missing"
    reading = read_grades('answer is 3, reasoning is 2. {"rationale": "step two"}', REASONING)
    assert reading.scores == {"answer": 3, "reasoning": 2}
    assert reading.rationale == "step two"


@given(scores=st.fixed_dictionaries({n: st.integers(0, 3) for n in ("answer", "reasoning")}))
def test_json_is_read_back(scores: dict[str, int]) -> None:
    assert read_grades(f"Because.\n{json.dumps(scores)}", REASONING).scores == scores


@given(text=st.text(max_size=400))
def test_any_text_is_read_or_refused_without_an_error(text: str) -> None:
    reading = read_grades(text, GRADED)

    assert reading.is_readable == (reading.scores.get("overall") in GRADED.scale)


VALID = Path(__file__).parents[2] / "src/r2med/judge/rubrics/graded.toml"


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ('grade = "overall"', 'grade = "best"', "grade is 'best'"),
        ("relevant_from = 2", "relevant_from = 1", "must be below relevant_from"),
        ("relevant_from = 2", "relevant_form = 2", "'relevant_form' is not known"),
        ('fields = ["query", "passage"]', 'fields = ["query"]', "contains {passage}"),
        (
            'fields = ["query", "passage"]',
            'fields = ["query", "passage", "answer"]',
            "does not contain {answer}",
        ),
        (
            '3 = "dedicated to the query and answers it"',
            "",
            "a meaning for every grade from 0 to 3",
        ),
        ("[prompt]", "[prompts]", "'prompts' is not known"),
        ("most = 3", "most = -1", "least below most"),
        ('name = "match"', 'name = "overall"', "different names"),
    ],
)
def test_an_invalid_rubric_names_the_file_and_the_problem(
    tmp_path: Path, old: str, new: str, finding: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(VALID.read_text().replace(old, new, 1))

    with pytest.raises(DataError, match=r"mine\.toml") as problem:
        find_rubric(str(path))
    assert finding in str(problem.value)


def test_a_rubric_of_the_users_own_replaces_the_wording_and_changes_the_hash(
    tmp_path: Path,
) -> None:
    path = tmp_path / "strict.toml"
    path.write_text(VALID.read_text().replace("You are strict", "You are lenient"))

    rubric = find_rubric(str(path))

    assert rubric.name == "strict" and rubric.hash != GRADED.hash
    assert "lenient" in rubric.messages({"query": "q", "passage": "p"})[0].content


def test_an_unknown_rubric_is_named() -> None:
    with pytest.raises(UsageError, match="Did you mean 'graded'"):
        find_rubric("grades")
    with pytest.raises(MissingError, match="no such rubric file"):
        find_rubric("absent.toml")
