from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.expand.tags import SEARCH_O1, SEARCH_R1, Tags, Turn

BEGIN, END = "<|begin_search_query|>", "<|end_search_query|>"


@pytest.mark.parametrize(
    "text",
    [
        f"I wonder. {BEGIN} iron studies {END}",
        f"I wonder. {BEGIN} iron studies",
        f"I wonder. {BEGIN}\niron\n studies {END} <|begin_search_result|> made up",
        "I wonder. < begin_search_query > iron studies <end_search_query>",
        f"I wonder. {BEGIN} iron studies {BEGIN} again {END}",
        "I wonder. <|BEGIN_SEARCH_QUERY|> iron studies <|begin_search_result|> made up",
    ],
)
def test_search_o1_finds_the_first_search_however_it_is_closed(text: str) -> None:
    assert SEARCH_O1.read(text) == Turn("search", "I wonder.", "iron studies")


@pytest.mark.parametrize(
    "text",
    [
        "I wonder. <search> iron studies </search>",
        "I wonder. <search> iron studies",
        "I wonder. <Search>iron studies</Search><information>made up</information>",
        "I wonder. < search > iron studies <information> made up",
        "I wonder. <search>iron studies</search> <answer> too early </answer>",
        "I wonder. <search> iron studies </answer>",
    ],
)
def test_search_r1_finds_the_first_search_however_it_is_closed(text: str) -> None:
    assert SEARCH_R1.read(text) == Turn("search", "I wonder.", "iron studies")


@pytest.mark.parametrize(
    "text", ["<answer> gout </answer>", "<answer>gout", "<ANSWER> gout </answer> <search> x"]
)
def test_search_r1_takes_an_answer_even_one_that_was_cut(text: str) -> None:
    assert SEARCH_R1.read(text) == Turn("answer", "", "gout")


@pytest.mark.parametrize("text", ["<search></search>", "<search> <search> </search>", "no tag"])
def test_a_turn_of_search_r1_without_a_readable_request_asks_for_nothing(text: str) -> None:
    assert SEARCH_R1.read(text).wish == "nothing"


def test_a_turn_of_search_o1_without_a_search_is_the_answer() -> None:
    assert SEARCH_O1.read(f"It is gout. {END}") == Turn("answer", "", "It is gout.")


@pytest.mark.parametrize("tags", [SEARCH_O1, SEARCH_R1])
@given(
    words=st.text(alphabet="abc ", min_size=1).map(str.split).filter(bool), thought=st.text("xyz")
)
def test_a_request_written_properly_is_read_back(
    tags: Tags, words: list[str], thought: str
) -> None:
    turn = Turn("search", thought, " ".join(words))

    assert tags.read(tags.closed(turn)) == turn


@given(st.text(alphabet="<>/|_ abeginsearchquerywd", max_size=80))
def test_no_text_breaks_the_reading(text: str) -> None:
    for tags in (SEARCH_O1, SEARCH_R1):
        turn = tags.read(text)

        assert turn.wish != "search" or turn.text
