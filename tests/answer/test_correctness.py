"""Correctness of answers: options, normalised match, token F1, abstention."""

from __future__ import annotations

import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.answer.correctness import (
    final_answer,
    is_abstention,
    is_match,
    normalise,
    reference_forms,
    score_answer,
    token_f1,
)
from r2med.answer.options import find_options, read_option, reference_option
from tests.answer.phrasings import OPTIONS, PHRASINGS, QUESTION


@pytest.mark.parametrize(("text", "expected"), PHRASINGS)
def test_options_are_read_from_the_phrasings_of_models(text: str, expected: str | None) -> None:
    assert read_option(text, OPTIONS) == expected


def test_there_are_a_hundred_phrasings() -> None:
    assert len({text for text, _ in PHRASINGS}) == len(PHRASINGS) >= 100


@pytest.mark.parametrize(
    "question",
    [
        QUESTION,
        QUESTION.replace(". ", ") "),
        "Which one? (A) Guillain-Barré syndrome (B) Myasthenia gravis (C) Botulism "
        "(D) Lambert-Eaton myasthenic syndrome (E) Tick paralysis",
    ],
)
def test_options_are_found_in_a_question(question: str) -> None:
    assert find_options(question) == OPTIONS


@pytest.mark.parametrize(
    "question",
    [
        "What is the most likely diagnosis?",
        "Vitamin A. Then what?",
        "She had hepatitis (A) and later (C); which test is next?",
        "A. only one option",
    ],
)
def test_open_questions_have_no_options(question: str) -> None:
    assert find_options(question) == {}


@pytest.mark.parametrize("reference", ["C", "(C)", "C. Botulism", "Botulism", "botulism."])
def test_a_reference_names_an_option_by_letter_or_text(reference: str) -> None:
    assert reference_option(reference, OPTIONS) == "C"


def test_a_reference_that_is_no_option_has_none() -> None:
    assert reference_option("Lead poisoning", OPTIONS) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Botulism", "Botulism"),
        ("Answer: Botulism [1]", "Botulism"),
        ("**Answer:** Botulism [1, 3]\nBecause: the pupils are fixed [2].", "Botulism"),
        ("Because the pupils are fixed [2].\nFinal answer: Botulism.", "Botulism."),
        ("<think>Answer: no</think>Answer: Botulism", "Botulism"),
        ("<answer>Botulism</answer>", "Botulism"),
        ("Explanation: pupils.\nExact Answer: Botulism\nConfidence: 80%", "Botulism"),
        ("The answer is Botulism", "Botulism"),
        ("The answer to the question is: Botulism", "Botulism"),
        ("The most likely diagnosis is Botulism", "Botulism"),
        ("Answer: GBS\nAnswer: Botulism", "Botulism"),
        ("", ""),
    ],
)
def test_the_final_answer_is_read(text: str, expected: str) -> None:
    assert final_answer(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "insufficient evidence",
        "Answer: Insufficient evidence.",
        "**Answer:** insufficient evidence [1]",
        "There is not enough information to answer.",
        "The passages do not contain enough evidence.",
        "The evidence is insufficient.",
        "I don't know.",
        "This cannot be determined from the passages.",
    ],
)
def test_abstentions_are_read(text: str) -> None:
    assert is_abstention(text)


@pytest.mark.parametrize(
    "text",
    [
        "Botulism",
        "Answer: Adrenal insufficiency",
        "Insufficient blood flow to the bowel",
        "<think>insufficient evidence?</think>Botulism",
        "Answer: Botulism. "
        + "The passages describe fixed pupils, descending weakness and home-canned food, which "
        "fit well, although there is not enough information about the incubation period here.",
    ],
)
def test_answers_are_not_abstentions(text: str) -> None:
    assert not is_abstention(text)


def test_a_reference_counts_without_its_parentheses() -> None:
    assert reference_forms("Syphilis (secondary)") == ("Syphilis (secondary)", "Syphilis")
    assert score_answer("Answer: syphilis", "Syphilis (secondary)").match == 1.0


def test_scores_of_an_answer_to_a_question_with_options() -> None:
    scores = score_answer("Answer: C. Botulism", "C", question=QUESTION)
    assert (scores.option, scores.abstained) == (1.0, False)
    assert score_answer("Answer: B", "C", question=QUESTION).option == 0.0
    abstained = score_answer("Answer: insufficient evidence", "C", question=QUESTION)
    assert (abstained.option, abstained.abstained) == (0.0, True)


WORDS = st.sampled_from(
    [
        "the",
        "a",
        "An",
        "Lambert-Eaton",
        "syndrome",
        "syndrome,",
        "(IgA)",
        "nephropathy",
        "été",
        "3.5",
    ]
)
TEXTS = st.one_of(st.lists(WORDS, max_size=8).map(" ".join), st.text(max_size=40))


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
def test_match_and_f1_equal_the_squad_formulas(answer: str, references: list[str]) -> None:
    assert normalise(answer) == squad_normalize(answer)
    assert float(is_match(answer, references)) == max(squad_em(answer, r) for r in references)
    expected = max(squad_f1(answer, reference) for reference in references)
    assert token_f1(answer, references) == pytest.approx(expected, abs=1e-12)


def squad_normalize(text: str) -> str:
    """The normalisation of SQuAD 2.0's evaluation, written from its description."""
    lower = text.lower()
    unpunctuated = "".join(c for c in lower if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", unpunctuated).split())


def squad_em(prediction: str, gold: str) -> int:
    return int(squad_normalize(prediction) == squad_normalize(gold))


def squad_f1(prediction: str, gold: str) -> float:
    predicted, expected = squad_normalize(prediction).split(), squad_normalize(gold).split()
    same = sum((Counter(predicted) & Counter(expected)).values())
    if not predicted or not expected:
        return float(predicted == expected)
    if same == 0:
        return 0.0
    precision, recall = same / len(predicted), same / len(expected)
    return 2 * precision * recall / (precision + recall)
