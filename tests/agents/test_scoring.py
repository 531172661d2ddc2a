"""Scores of agents against figures worked out by hand, and scripted loops from end to end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r2med.agents.scoring import AgentSummary, score_agents
from r2med.agents.sources import TraceSet
from r2med.agents.trace import AgentStep, AgentTrace
from r2med.tasks.task import Task
from tests.cli.running import run
from tests.llm_server import LLMServer


def search(words: str, *documents: str) -> AgentStep:
    return AgentStep("search", words, documents, "search")


def answered(query_id: str, *steps: AgentStep, text: str, **fields: Any) -> AgentTrace:
    return AgentTrace(query_id, (*steps, AgentStep("answer", text)), **fields)


def summary(task: Task, *traces: AgentTrace) -> AgentSummary:
    return score_agents(task, [trace_set(task, *traces)]).agents[0]


def trace_set(task: Task, *traces: AgentTrace, name: str = "agent") -> TraceSet:
    return TraceSet(name, task.name, task.hash, "browsecomp", "runs", traces)


@pytest.fixture
def traces() -> list[AgentTrace]:
    """An agent that does well, one that searches in vain, and one that reads and guesses."""
    return [
        answered(
            "1",
            search("beer", "other-1"),
            search("toe", "other-1", "gout-1"),
            text="Exact Answer: Gout\nConfidence: 90%",
            cited=("gout-1", "other-1"),
            confidence=0.9,
            tokens=100,
        ),
        answered("2", search("ice", "other-1"), text="Pica", confidence=0.6, tokens=20),
        answered(
            "3", search("gums", "scurvy-1", "gout-2"), text="The answer is B.", confidence=0.9
        ),
    ]


def test_every_score_has_its_value(task: Task, traces: list[AgentTrace]) -> None:
    agent = summary(task, *traces)

    values = {name: mean.value for name, mean in agent.means.items()}
    assert values == pytest.approx(
        {
            "recall": (1 / 2 + 0 + 1) / 3,
            "saw_positive": 2 / 3,
            "used_positive": 1 / 2,
            "citation_precision": 1 / 2,
            "correct": 1 / 3,
            "mentions": 1 / 2,
            "f1": 1 / 3,
            "abstained": 0,
            "searches": 4 / 3,
            "tokens": 60,
            "documents": 5 / 3,
        }
    )
    assert [trace.first_positive for trace in agent.scores] == [2, None, 1]
    assert agent.median_first_positive == 1.5
    assert agent.calibration is not None and agent.calibration.answers == 3
    # Bin (0.8, 0.9]: one of two correct at 0.9; bin (0.5, 0.6]: wrong at 0.6.
    assert agent.calibration.error == pytest.approx(2 / 3 * 0.4 + 1 / 3 * 0.6)


def test_means_have_intervals_that_hold_them(task: Task, traces: list[AgentTrace]) -> None:
    for mean in summary(task, *traces).means.values():
        assert mean.interval is not None
        assert mean.interval.low <= mean.value <= mean.interval.high


def test_counts_that_do_not_vary_have_no_interval(task: Task, traces: list[AgentTrace]) -> None:
    alone = summary(task, traces[0]).means

    assert alone["searches"].interval is None and alone["tokens"].interval is None
    assert alone["recall"].interval is not None  # a share has bounds, so one query says something


def test_samples_of_a_query_count_as_one(task: Task, traces: list[AgentTrace]) -> None:
    again = [replace(traces[1], sample=number) for number in range(1, 10)]

    once, often = summary(task, *traces), summary(task, *traces, *again)

    assert often.means["recall"] == once.means["recall"]
    assert (often.queries, often.traces) == (3, 12)


def test_use_is_unknown_for_an_agent_that_never_cites(task: Task, traces: list[AgentTrace]) -> None:
    agent = summary(task, *(replace(trace, cited=()) for trace in traces))

    assert "used_positive" not in agent.means and "citation_precision" not in agent.means


def test_a_final_list_counts_as_use(task: Task, traces: list[AgentTrace]) -> None:
    ranked = [replace(trace, cited=(), final_list=("gout-1", "iron-1")) for trace in traces]

    used = [trace.used_positive for trace in summary(task, *ranked).scores]

    assert used == [1.0, None, 0.0]


def test_a_trace_without_an_answer_is_wrong_and_counted(task: Task) -> None:
    unfinished = AgentTrace("1", (search("toe", "gout-1"),), "incomplete")

    agent = summary(task, unfinished)

    assert (agent.incomplete, agent.means["correct"].value) == (1, 0.0)
    assert agent.means["recall"].value == 0.5
    assert any("2 queries" in problem for problem in agent.problems)


def test_an_agent_equal_to_the_first_does_not_differ(task: Task, traces: list[AgentTrace]) -> None:
    same = trace_set(task, *traces, name="same")

    scores = score_agents(task, [trace_set(task, *traces), same])

    assert [row.score for row in scores.differences] == ["recall", "correct", "f1"]
    assert all((r.difference.difference, r.p_holm) == (0, 1) for r in scores.differences)


def reply_as_agent(body: dict[str, Any]) -> str:
    """Search once for what the query suggests, then answer; on query 2 answer at once."""
    messages = body["messages"]
    opening = str(messages[0]["content"])
    is_first = len(messages) == 1
    if "toe" in opening.partition(":\n")[2]:
        words, text = "urate", "It is gout. Confidence: 80%"
    elif "gums" in opening:
        words, text = "barley", "I do not know."
    else:
        return "Iron deficiency"
    tag = f"Think. <|begin_search_query|> {words} <|end_search_query|>"
    return tag if is_first else text


def score_json(*arguments: str) -> dict[str, Any]:
    outcome = run("agents", "score", *arguments, "--json")
    assert outcome.code == 0, outcome.err
    [agent] = json.loads(outcome.out)["agents"]
    return dict(agent)


def test_a_scripted_loop_has_known_figures(folder: Path, server: LLMServer) -> None:
    server.reply = reply_as_agent
    spec, of_server = "search-o1:qwen-7b | bm25", ("--llm-url", server.url)
    done = run("eval", spec, "--task", str(folder), *of_server)
    assert done.code == 0, done.err

    agent = score_json(spec, "--task", str(folder))

    first, second, third = agent["scores"]
    assert (first["searches"], first["recall"], first["first_positive"]) == (1, 1.0, 1)
    assert (first["mentions"], first["confidence"], first["used_positive"]) == (1.0, 0.8, 1.0)
    assert (second["searches"], second["recall"], second["correct"]) == (0, 0.0, 1.0)
    assert (third["searches"], third["recall"], third["abstained"]) == (1, 0.0, 1.0)
    # The scripted server counts a token per word: 4 + 5, 2, and 4 + 4.
    assert [trace["tokens"] for trace in agent["scores"]] == [9, 2, 8]

    generated = run("generate", "search-o1", "--llm", "qwen-7b", "--task", str(folder), *of_server)
    assert generated.code == 0, generated.err
    [traces] = Path("r2med-generations").rglob("traces.jsonl")
    again = score_json(str(traces.parent), "--task", str(folder))
    assert again["means"]["recall"] == agent["means"]["recall"]
    assert again["means"]["tokens"] == agent["means"]["tokens"]
    assert "used_positive" not in again["means"]


def test_a_system_without_an_agent_has_no_traces(folder: Path) -> None:
    assert run("eval", "bm25", "--task", str(folder)).code == 0

    outcome = run("agents", "score", "bm25", "--task", str(folder))

    assert outcome.code == 1 and "no traces of an agent" in outcome.err
