from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.expand.agents import (
    SEARCH_O1,
    SEARCH_R1,
    AgentLoop,
    RetrievedPassage,
    Tags,
    Trace,
    Turn,
)
from r2med.expand.answers import Sample
from r2med.expand.expander import Method
from r2med.expand.prompts import read_prompt
from r2med.remote.completions import ChatAnswer, ChatRequest, Message
from r2med.settings import parse_settings
from r2med.systems.registry import entries

BEGIN, END = "<|begin_search_query|>", "<|end_search_query|>"
LIBRARY = {
    "ferritin": [
        RetrievedPassage("iron", "one two three four five"),
        RetrievedPassage("copper", "six"),
    ]
}


class Library:
    """Finds what it holds under exactly these words, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, texts: Sequence[str], depth: int) -> list[list[RetrievedPassage]]:
        self.asked.append(list(texts))
        return [LIBRARY.get(text, [])[:depth] for text in texts]


class Model:
    """Says its lines, one a turn, to every conversation that opens with the same words."""

    def __init__(self, lines: Mapping[str, Sequence[str]], tokens: int = 10) -> None:
        self.lines = lines
        self.tokens = tokens
        self.batches: list[list[ChatRequest]] = []

    def __call__(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        self.batches.append(list(requests))
        return [self._answer(request) for request in requests]

    def _answer(self, request: ChatRequest) -> ChatAnswer:
        turn = sum(message.role == "assistant" for message in request.messages)
        text = self.lines[request.messages[0].content][turn]
        return ChatAnswer(text, "stop" if text else "empty", 1, self.tokens, 0.0, False)


def loop(
    tags: Tags, library: Library | None = None, *, turns: int = 3, tokens: int = 0
) -> AgentLoop:
    name = "search-r1" if tags is SEARCH_R1 else "search-o1"
    method = parse_settings(Method, entries()[name].fields)
    method = replace(method, turns=turns, tokens=tokens, passages=2, words=3)
    return AgentLoop(method, read_prompt(name, "exam"), library or Library())


def run(agents: AgentLoop, *lines: str, tokens: int = 10) -> tuple[Sample, Trace]:
    [outing] = agents.run([opening("q")], Model({"q": lines}, tokens))
    return outing


def opening(text: str) -> ChatRequest:
    return ChatRequest((Message("user", text),))


def kinds(trace: Trace) -> list[str]:
    return [step.kind for step in trace.steps]


def test_an_agent_searches_reads_trimmed_passages_and_answers() -> None:
    sample, trace = run(
        loop(SEARCH_R1), "Hm. <search>ferritin", "<answer> iron deficiency </answer>"
    )

    assert sample.raw == "<answer>iron deficiency</answer>"
    assert sample.answer == "iron deficiency"
    assert kinds(trace) == ["thought", "search", "passages", "answer"]
    assert trace.searches == ("ferritin",)
    passages = trace.steps[2]
    assert passages.documents == ("iron", "copper")
    assert "Doc 1: one two three ..." in passages.text
    assert trace.stop == "answer"
    assert trace.tokens == 20


def test_the_model_sees_its_own_request_closed_and_then_the_result() -> None:
    model = Model({"q": ["<search>ferritin</search><information>made up", "<answer>x</answer>"]})

    loop(SEARCH_R1).run([opening("q")], model)

    first, request, result = model.batches[1][0].messages
    assert first.content == "q"
    assert request.content == "<search> ferritin </search>"
    assert result.role == "user" and "<information>" in result.content
    assert "made up" not in request.content + result.content


def test_an_agent_without_tags_in_its_last_words_has_answered() -> None:
    begin, end = SEARCH_O1.search_tags

    sample, trace = run(loop(SEARCH_O1), f"{begin} ferritin {end}", "It is iron deficiency.")

    assert sample.answer == "It is iron deficiency."
    assert kinds(trace) == ["search", "passages", "answer"]


def test_many_agents_go_in_step_and_search_together() -> None:
    library = Library()
    model = Model(
        {
            "a": ["<search>ferritin</search>", "<answer>A</answer>"],
            "b": ["<search>nothing</search>", "<answer>B</answer>"],
            "c": ["<answer>C</answer>"],
        }
    )

    outings = loop(SEARCH_R1, library).run([opening(text) for text in "abc"], model)

    assert [trace.steps[-1].text for _, trace in outings] == ["A", "B", "C"]
    assert [len(batch) for batch in model.batches] == [3, 2]
    assert library.asked == [["ferritin", "nothing"]]


def test_a_search_that_finds_nothing_is_told_so() -> None:
    _, trace = run(loop(SEARCH_R1), "<search>unheard of</search>", "<answer>x</answer>")

    passages = trace.steps[1]
    assert passages.documents == ()
    assert "No document holds any of these words" in passages.text


def test_when_its_searches_are_used_up_an_agent_has_to_answer() -> None:
    again = "<search>ferritin</search>"

    sample, trace = run(loop(SEARCH_R1, turns=2), again, again, "<think>well</think> iron, I guess")

    assert sample.answer == "iron, I guess"
    assert len(trace.searches) == 2
    assert trace.steps[-2].kind == "reminder"
    assert trace.stop == "turns"


def test_an_agent_stops_when_its_tokens_are_used_up() -> None:
    again = "<search>ferritin</search>"

    _, trace = run(loop(SEARCH_R1, turns=9, tokens=25), *[again] * 9, tokens=10)

    assert trace.stop == "tokens"
    assert trace.tokens == 30


def test_unreadable_tags_are_pointed_out_once_then_an_answer_is_wanted() -> None:
    broken = "<search aspirin </serach>"

    _, trace = run(loop(SEARCH_R1), broken, broken, "<answer>aspirin</answer>")

    assert trace.malformed == 2
    assert trace.steps[-1].text == "aspirin"


def test_a_silent_model_ends_its_agent() -> None:
    sample, trace = run(loop(SEARCH_R1), "")

    assert (sample.answer, trace.stop) == ("", "silence")


@pytest.mark.parametrize("tags", [SEARCH_O1, SEARCH_R1])
def test_no_agent_goes_on_for_ever(tags: Tags) -> None:
    agents = loop(tags, turns=2)
    begin, end = tags.search_tags
    model = Model({"q": [f"{begin} ferritin {end}"] * 50})

    agents.run([opening("q")], model)

    assert len(model.batches) == 3


def test_a_trace_is_read_back_as_it_was_stored() -> None:
    trace = run(loop(SEARCH_R1), "<search>ferritin", "<answer>iron</answer>")[1]

    assert Trace.from_json(json.loads(json.dumps(asdict(trace)))) == trace


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
    assert SEARCH_R1.read(text).action == "nothing"


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

    assert tags.read(tags.close_search(turn)) == turn


@given(st.text(alphabet="<>/|_ abeginsearchquerywd", max_size=80))
def test_no_text_breaks_the_reading(text: str) -> None:
    for tags in (SEARCH_O1, SEARCH_R1):
        turn = tags.read(text)

        assert turn.action != "search" or turn.text
