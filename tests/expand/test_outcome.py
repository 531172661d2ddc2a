from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.expand.outcome import is_refusal, judged, restored


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I am sorry. This is beyond me.",
        "I cannot provide medical advice.",
        "I’m unable to assist with this request.",
        "As an AI, I do not give diagnoses.",
        "  Sorry, no.",
    ],
)
def test_a_text_that_declines_is_a_refusal(text: str) -> None:
    assert is_refusal(text)
    assert judged(text, text, "stop").outcome == "refused"


@pytest.mark.parametrize(
    "text",
    [
        "The patient cannot help swallowing air.",
        "I cannot rule out gout: urate crystals decide.",
        "Sorry is what he said; then he fell.",
        "I'm sorry, " + "but a long passage follows after all. " * 30,
    ],
)
def test_a_text_that_answers_is_none(text: str) -> None:
    assert not is_refusal(text)


@given(st.text(alphabet=" \n\t"), st.sampled_from(["stop", "length", "empty", "too-long"]))
def test_an_answer_without_words_is_empty_whatever_the_server_says(text: str, finish: str) -> None:
    assert judged(text, text, finish).outcome == "empty"
    assert not restored(text, text).useful


def test_what_the_server_calls_a_refusal_is_one() -> None:
    assert judged("", "", "refusal").outcome == "refused"


def test_a_cut_answer_is_used() -> None:
    sample = judged("half a sen", "half a sen", "length")

    assert (sample.outcome, sample.useful) == ("truncated", True)


def test_a_published_text_is_taken_as_it_is_even_a_refusal() -> None:
    assert restored("I'm sorry, but I can't.", "I'm sorry, but I can't.").useful
