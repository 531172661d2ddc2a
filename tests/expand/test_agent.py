from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from r2med.expand.agent import Budget, Loop, Outing
from r2med.expand.interface import Passage
from r2med.expand.prompting import read_prompt
from r2med.expand.tags import SEARCH_O1, SEARCH_R1, Tags
from r2med.expand.trace import Trace
from r2med.remote.chat import ChatAnswer, ChatRequest

LIBRARY = {"ferritin": [Passage("iron", "one two three four five"), Passage("copper", "six")]}


class Finder:
    """Finds what the library holds under exactly these words, and counts its calls."""

    identity: Mapping[str, object] = {"finder": "library"}

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, texts: Sequence[str], *, depth: int) -> list[list[Passage]]:
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


def loop(tags: Tags, finder: Finder | None = None, *, turns: int = 3, tokens: int = 0) -> Loop:
    method = "search-r1" if tags is SEARCH_R1 else "search-o1"
    prompt = read_prompt(method, "exam")
    return Loop(tags, prompt, Budget(turns, tokens, passages=2, words=3), finder or Finder())


def run(agents: Loop, *lines: str, tokens: int = 10) -> Outing:
    [outing] = agents.run([("q", 0)], Model({"q": lines}, tokens), strip=lambda text: text)
    return outing


def kinds(trace: Trace) -> list[str]:
    return [step.kind for step in trace.steps]


def test_an_agent_searches_reads_trimmed_passages_and_answers() -> None:
    outing = run(loop(SEARCH_R1), "Hm. <search>ferritin", "<answer> iron deficiency </answer>")

    assert outing.raw == "<answer>iron deficiency</answer>"
    assert kinds(outing.trace) == ["thought", "search", "passages", "answer"]
    assert outing.trace.searches == ("ferritin",)
    passages = outing.trace.steps[2]
    assert passages.documents == ("iron", "copper")
    assert "Doc 1: one two three ..." in passages.text
    assert outing.trace.stop == "answer"
    assert outing.trace.tokens == 20


def test_the_model_sees_its_own_request_closed_and_then_the_result() -> None:
    model = Model({"q": ["<search>ferritin</search><information>made up", "<answer>x</answer>"]})

    loop(SEARCH_R1).run([("q", 0)], model, strip=lambda text: text)

    opening, request, result = model.batches[1][0].messages
    assert opening.content == "q"
    assert request.content == "<search> ferritin </search>"
    assert result.role == "user" and "<information>" in result.content
    assert "made up" not in request.content + result.content


def test_an_agent_without_tags_in_its_last_words_has_answered() -> None:
    begin, end = SEARCH_O1.written

    outing = run(loop(SEARCH_O1), f"{begin} ferritin {end}", "It is iron deficiency.")

    assert outing.answer == "It is iron deficiency."
    assert kinds(outing.trace) == ["search", "passages", "answer"]


def test_many_agents_go_in_step_and_search_together() -> None:
    finder = Finder()
    model = Model(
        {
            "a": ["<search>ferritin</search>", "<answer>A</answer>"],
            "b": ["<search>nothing</search>", "<answer>B</answer>"],
            "c": ["<answer>C</answer>"],
        }
    )

    outings = loop(SEARCH_R1, finder).run(
        [("a", 0), ("b", 0), ("c", 0)], model, strip=lambda text: text
    )

    assert [outing.trace.steps[-1].text for outing in outings] == [
        f"<answer>{letter}</answer>" for letter in "ABC"
    ]
    assert [len(batch) for batch in model.batches] == [3, 2]
    assert finder.asked == [["ferritin", "nothing"]]


def test_a_search_that_finds_nothing_is_told_so() -> None:
    outing = run(loop(SEARCH_R1), "<search>unheard of</search>", "<answer>x</answer>")

    passages = outing.trace.steps[1]
    assert passages.documents == ()
    assert "No document holds any of these words" in passages.text


def test_when_its_searches_are_used_up_an_agent_has_to_answer() -> None:
    again = "<search>ferritin</search>"

    outing = run(loop(SEARCH_R1, turns=2), again, again, "<think>well</think> iron, I guess")

    assert outing.answer == "iron, I guess"
    assert len(outing.trace.searches) == 2
    assert outing.trace.steps[-2].kind == "reminder"
    assert outing.trace.stop == "turns"


def test_an_agent_stops_when_its_tokens_are_used_up() -> None:
    again = "<search>ferritin</search>"

    outing = run(loop(SEARCH_R1, turns=9, tokens=25), *[again] * 9, tokens=10)

    assert outing.trace.stop == "tokens"
    assert outing.trace.tokens == 30


def test_unreadable_tags_are_pointed_out_once_then_an_answer_is_wanted() -> None:
    broken = "<search aspirin </serach>"

    outing = run(loop(SEARCH_R1), broken, broken, "<answer>aspirin</answer>")

    assert outing.trace.malformed == 2
    assert outing.trace.steps[-1].text == "<answer>aspirin</answer>"


def test_a_silent_model_ends_its_agent() -> None:
    outing = run(loop(SEARCH_R1), "")

    assert (outing.answer, outing.trace.stop) == ("", "silence")


@pytest.mark.parametrize("tags", [SEARCH_O1, SEARCH_R1])
def test_no_agent_takes_more_turns_than_announced(tags: Tags) -> None:
    agents = loop(tags, turns=2)
    begin, end = tags.written
    model = Model({"q": [f"{begin} ferritin {end}"] * 50})

    agents.run([("q", 0)], model, strip=lambda text: text)

    assert len(model.batches) <= agents.most_turns


def test_a_trace_is_read_back_as_it_was_stored() -> None:
    trace = run(loop(SEARCH_R1), "<search>ferritin", "<answer>iron</answer>").trace

    assert Trace.from_json(trace.to_json(), "here") == trace
