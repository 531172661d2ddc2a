"""What is read from the texts of agents, and what a trace says about its searches."""

from __future__ import annotations

import pytest

from r2med.agents.trace import AgentStep, AgentTrace, read_citations, read_confidence


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Explanation: x\nExact Answer: gout\nConfidence: 85%", 0.85),
        ("**Confidence:** 70 %", 0.7),
        ("confidence is 0.4", 0.4),
        ("Confidence score: 1.0", 1.0),
        ("Confidence: 90", 0.9),
        ("Confidence: 1", 0.01),
        ("Confidence: 150%", 1.0),
        ('{"confidence": 0.25}', 0.25),
        ("Confidence: 20%\nOn reflection.\nConfidence: 60%", 0.6),
        ("I am confident that it is gout.", None),
        ("", None),
    ],
)
def test_the_last_stated_confidence_counts(text: str, expected: float | None) -> None:
    assert read_confidence(text) == pytest.approx(expected) if expected else True
    assert (read_confidence(text) is None) == (expected is None)


def test_citations_are_documents_in_brackets_that_the_agent_saw() -> None:
    text = "Urate [a 1], see [b2, c3; a 1] and 【d4】, not [e5] nor a 1."

    assert read_citations(text, ["a 1", "b2", "c3", "d4", "f6"]) == ("a 1", "b2", "c3", "d4")


def test_an_opened_document_counts_for_the_search_before_it() -> None:
    trace = AgentTrace(
        "1",
        (
            AgentStep("search", "beer", ("x",), "search"),
            AgentStep("search", "toe", ("y",), "search"),
            AgentStep("tool", '{"docid": "z"}', ("z",), "get_document"),
            AgentStep("answer", "gout"),
        ),
    )

    assert (trace.searches, dict(trace.tool_calls)) == (2, {"search": 2, "get_document": 1})
    assert [trace.first_search_with([name]) for name in "xyz"] == [1, 2, 2]
    assert trace.first_search_with(["w"]) is None
    assert trace.documents == ("x", "y", "z") and trace.answer == "gout"


def test_searches_are_counted_from_stated_calls_where_no_step_is_listed() -> None:
    calls = {"search": 4, "semantic_search": 1, "get_document": 2}
    trace = AgentTrace("1", (AgentStep("answer", "gout"),), stated_calls=calls)

    assert trace.searches == 5


def test_only_the_last_step_can_be_an_answer() -> None:
    with pytest.raises(ValueError, match="last step"):
        AgentTrace("1", (AgentStep("answer", "a"), AgentStep("thought", "b")))
