from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.expand.answers import classify_answer, extract_answer, is_refusal
from r2med.remote.registry import Stripping

#: Words without any character that a marker consists of.
plain = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="<>/FR"), max_size=60)
MARKED: dict[Stripping, tuple[str, str]] = {
    "think": ("</think>", ""),
    "final-response": ("## Final Response\n\n", ""),
    "answer": ("<answer>", "</answer>"),
}


@pytest.mark.parametrize("how", MARKED)
@given(before=plain, answer=plain)
def test_the_answer_is_what_follows_the_mark(how: Stripping, before: str, answer: str) -> None:
    opening, closing = MARKED[how]

    found = extract_answer(f"{before}{opening}{answer}{closing}", how)

    assert found == answer.strip()


@pytest.mark.parametrize("how", get_args(Stripping))
@given(text=plain)
def test_a_text_without_its_mark_is_taken_whole(how: Stripping, text: str) -> None:
    assert extract_answer(text, how) == text


@pytest.mark.parametrize("how", MARKED)
@given(before=plain, answer=plain)
def test_stripping_twice_is_stripping_once(how: Stripping, before: str, answer: str) -> None:
    opening, closing = MARKED[how]
    once = extract_answer(f"{before}{opening}{answer}{closing}", how)

    assert extract_answer(once, how) == once


@given(st.text(max_size=80), st.sampled_from(get_args(Stripping)))
def test_nothing_is_made_up(text: str, how: Stripping) -> None:
    assert extract_answer(text, how) in text


@pytest.mark.parametrize(
    ("how", "text", "answer"),
    [
        ("think", "<think>a</think> b </think> c", "b </think> c"),
        ("think", "<think> never closed", "<think> never closed"),
        ("think", "reasoned </think>\n", ""),
        ("final-response", "## Thinking\nx\n## Final Response\n\ny", "y"),
        ("answer", "<answer> one </answer> <answer>two</answer>", "one"),
        ("answer", "<answer> cut", "<answer> cut"),
        ("none", "<think>a</think> b", "<think>a</think> b"),
    ],
)
def test_the_first_mark_counts(how: Stripping, text: str, answer: str) -> None:
    assert extract_answer(text, how) == answer


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I am sorry. This is beyond me.",
        "I cannot provide medical advice.",
        "I’m unable to assist with this request.",
        "As an AI, I do not give diagnoses.",
        "  Sorry, no.",
        "I'm sorry, but I can't assist with that request.",
        "I can't help with that.",
        "I cannot fulfill this request.",
        "I can’t continue with this conversation.",
        "Sorry, I can't do that.",
        "I apologize, but I am not able to provide a diagnosis. Please consult a "
        "qualified healthcare professional.",
        "As an AI language model, I cannot provide medical advice or diagnose "
        "conditions. Please see a doctor.",
        "Unfortunately, I'm not able to help with that. If you have other questions, "
        "feel free to ask.",
        "I must respectfully decline to write this passage.",
        "I won't be able to assist with that.",
        "I am not comfortable writing about this topic.",
        "I'm really sorry you're feeling this way, but I'm unable to provide the help "
        "that you need. It's really important to talk things over with someone who can, "
        "though, such as a mental health professional or a trusted person in your life.",
        "I cannot answer that question.",
        "I cannot rank these 3 passages.",
        "I'm sorry, I cannot grade this passage from 0 to 10.",
        "This request cannot be fulfilled.",
        "I’m sorry, but I cannot provide guidance on self-harm. If you are in crisis, "
        "please contact a professional for help.",
        "I can't provide a passage for this clinical case. I can, however, offer general "
        "information about diabetes if that helps.",
        "I cannot write that.",
        "I'm sorry, but as an AI I can't provide a medical diagnosis.",
        "I do not feel comfortable answering this.",
        "I'm an AI language model, I don't provide diagnoses.",
        "My apologies, but I can't complete this request.",
        "I'm not able to generate that content.",
    ],
)
def test_a_text_that_declines_is_a_refusal(text: str) -> None:
    assert is_refusal(text)
    assert classify_answer(text, text, "stop").outcome == "refused"


@pytest.mark.parametrize(
    "text",
    [
        "I cannot exclude pulmonary embolism without imaging; a D-dimer or CT "
        "angiography is needed.",
        "I cannot exclude pulmonary embolism.",
        "I cannot rule out gout: urate crystals decide.",
        "The patient cannot help swallowing air.",
        "Sorry is what he said; then he fell.",
        "I can't breathe when I lie flat, the patient says: orthopnoea points to left "
        "heart failure.",
        "I am unable to close my eye: the complaint of a patient with Bell's palsy.",
        "I'm sorry to hear about your symptoms. Night pain in the big toe after beer "
        "suggests gout, caused by urate crystals in the joint.",
        "I apologize for the confusion. The correct test is serum ferritin, which falls "
        "first when iron is lacking.",
        "As an AI language model, I note that ferritin falls first when iron is lacking.",
        "As an AI I cannot examine the patient, but the combination of corkscrew hairs "
        "and bleeding gums is typical of scurvy, a lack of ascorbic acid.",
        "I cannot help but think of scurvy.",
        "I can't help coughing at night, says the boy: think of asthma.",
        "I will not give aspirin to a child with varicella because of Reye syndrome, and "
        "neither should you; paracetamol is the safer choice.",
        "Unfortunately, statins cannot be tolerated by this patient.",
        "Sorry for the delay. Iron deficiency anaemia is the most likely diagnosis.",
        "Patients say 'I cannot sleep'; restless legs follow low ferritin.",
        "I could not feel the dorsalis pedis pulse.",
        "I won't recommend surgery here: the aneurysm is below 5.5 cm.",
        "I cannot give a definitive diagnosis without laboratory values, but the picture "
        "of a hot swollen toe after beer strongly suggests gout.",
        "Myasthenia gravis: the patient reports 'I can't keep my eyes open' by evening.",
        "I am not able to swallow is a typical complaint in achalasia.",
        "I'm sorry, " + "but a long passage follows after all. " * 30,
    ],
)
def test_a_text_that_answers_is_none(text: str) -> None:
    assert not is_refusal(text)
    assert classify_answer(text, text, "stop").outcome == "ok"


@given(st.text())
def test_no_text_breaks_the_detector(text: str) -> None:
    assert is_refusal(text) in (True, False)


@given(st.text(alphabet=" \n\t"), st.sampled_from(["stop", "length", "empty", "too-long"]))
def test_an_answer_without_words_is_empty_whatever_the_server_says(text: str, finish: str) -> None:
    assert classify_answer(text, text, finish).outcome == "empty"


def test_what_the_server_refuses_without_a_word_is_a_refusal() -> None:
    assert classify_answer("", "", "refusal").outcome == "refused"


@pytest.mark.parametrize("finish", ["length", "refusal"])
def test_an_answer_that_was_cut_is_used(finish: str) -> None:
    sample = classify_answer("half a sen", "half a sen", finish)

    assert (sample.outcome, sample.useful) == ("truncated", True)
