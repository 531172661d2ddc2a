from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.expand.stripping import STRIPPINGS, strip
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

    found = strip(f"{before}{opening}{answer}{closing}", how)

    assert found == answer.strip()


@pytest.mark.parametrize("how", STRIPPINGS)
@given(text=plain)
def test_a_text_without_its_mark_is_taken_whole(how: Stripping, text: str) -> None:
    assert strip(text, how) == text


@pytest.mark.parametrize("how", MARKED)
@given(before=plain, answer=plain)
def test_stripping_twice_is_stripping_once(how: Stripping, before: str, answer: str) -> None:
    opening, closing = MARKED[how]
    once = strip(f"{before}{opening}{answer}{closing}", how)

    assert strip(once, how) == once


@given(st.text(max_size=80), st.sampled_from(STRIPPINGS))
def test_nothing_is_made_up(text: str, how: Stripping) -> None:
    assert strip(text, how) in text


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
    assert strip(text, how) == answer
