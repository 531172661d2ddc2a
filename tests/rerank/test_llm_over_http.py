"""LLM rerankers through the real client against a server on loopback that misbehaves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

import r2med
from r2med.errors import LimitError, MissingError
from r2med.home import home
from r2med.remote.budget import Limits
from r2med.retrieve.conditions import Conditions
from r2med.runs.run import ordered
from r2med.systems.build import System
from tests.llm_server import EMPTY, REFUSING, LLMServer, cut, fails, garbled, running_llm_server

pytest.importorskip("aiohttp")

TASK = "demo/biology"
QUICK = Limits(concurrency=4, timeout=10, backoff=0.001)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LLMServer]:
    for name in ("URL", "KEY", "CONFIG"):
        monkeypatch.delenv(f"R2MED_LLM_{name}", raising=False)
    with running_llm_server() as running:
        running.reply = backwards
        yield running


def backwards(body: dict[str, Any]) -> str:
    prompt = body["messages"][-1]["content"]
    shown = re.findall(r"^\[(\d+)\] ", prompt, re.MULTILINE)
    return " > ".join(f"[{n}]" for n in reversed(shown)) if shown else "Score: 5"


def system(text: str, server: LLMServer, told: list[str] | None = None) -> System:
    heard = told.append if told is not None else lambda message: None
    return System.from_spec(text, Conditions(llm_url=server.url, limits=QUICK, tell=heard))


def test_a_list_is_reranked_end_to_end(server: LLMServer) -> None:
    first = r2med.evaluate("bm25", TASK)

    result = r2med.evaluate(system("bm25 | listwise:qwen-7b@10", server), TASK)

    measured = ordered(first.run, "trec")
    for query in measured.query_ids.to_pylist():
        before = [document for document, _ in measured.ranking(query)]
        after = [document for document, _ in result.run.ranking(query)]
        assert after == before[:10][::-1] + before[10:]


def test_calls_tokens_and_unread_answers_are_in_the_result(server: LLMServer) -> None:
    told: list[str] = []
    server.script.extend([EMPTY, REFUSING])

    result = r2med.evaluate(
        system("bm25 | listwise:qwen-7b@10", server, told), TASK, tell=told.append
    )

    queries = result.record.task.queries
    cost = next(cost for cost in result.record.stages if cost["stage"] == "rerank")
    facts = result.record.facts["listwise:qwen-7b@10"]
    assert (cost["calls"], facts["malformed"]) == (queries, 2)
    assert cost["tokens"] > 0
    assert any(f"2 of {queries} answers could not be read" in message for message in told)


def test_what_was_answered_is_not_asked_again(server: LLMServer) -> None:
    made = system("bm25 | pointwise:qwen-7b@3", server)
    first = r2med.evaluate(made, TASK)
    asked = len(server.seen)

    again = r2med.evaluate(made, TASK, force=True)

    assert asked == 3 * first.record.task.queries
    assert len(server.seen) == asked
    assert again.metrics == first.metrics


def test_a_server_that_stumbles_is_asked_again(server: LLMServer) -> None:
    server.script.extend([fails(429, retry_after="0"), fails(500), cut(), garbled()])

    result = r2med.evaluate(system("bm25 | listwise:qwen-7b@10", server), TASK)

    assert result.record.facts["listwise:qwen-7b@10"]["malformed"] == 0


def test_grades_that_are_all_equal_change_nothing(server: LLMServer) -> None:
    first = r2med.evaluate("bm25", TASK)

    result = r2med.evaluate(system("bm25 | pointwise:qwen-7b@3", server), TASK)

    assert result.metrics == first.metrics


def reasoning(body: dict[str, Any]) -> str:
    """Answers of every kind after a thought; the last passage shown is the best."""
    if "prompt" in body:
        return "Maybe it fits."
    prompt = body["messages"][-1]["content"]
    numbers = re.findall(r"^\[(\d+)\]", prompt, re.MULTILINE)
    if "JSON" in prompt:
        return "<answer>" + json.dumps({f"[{n}]": int(n) % 11 for n in numbers}) + "</answer>"
    order = " > ".join(f"[{n}]" for n in reversed(numbers))
    return f"<think>Which one of [1] to [5]?</think> <answer>{order}</answer>"


@pytest.mark.parametrize(
    ("name", "calls"),
    [("reasonrank", 1), ("insertrank", 1), ("rank1", 6), ("rank-r1", 2), ("grouprank", 2)],
)
def test_every_protocol_that_thinks_runs_end_to_end(
    server: LLMServer, name: str, calls: int
) -> None:
    server.reply = reasoning
    server.alternatives = lambda prompt: {" true": -0.1, " false": -2.0 - len(prompt) / 1e6}
    text = f"bm25 | {name}:qwen-7b@3"

    result = r2med.evaluate(system(text, server), TASK)

    facts = result.record.facts[f"{name}:qwen-7b@3"]
    queries = result.record.task.queries
    assert len(server.seen) == facts["calls"]
    assert facts["calls"] == calls * queries
    assert (facts["malformed"], facts["partial"]) == (0, 0)
    traced = (home() / facts["trace"]).read_text(encoding="utf-8").splitlines()
    assert len(traced) == facts["answers"]
    assert {json.loads(line)["query_id"] for line in traced} == set(
        result.run.query_ids.to_pylist()
    )

    r2med.evaluate(system(text, server), TASK, force=True)

    assert len(server.seen) == facts["calls"]


def test_a_server_without_log_probabilities_is_refused(server: LLMServer) -> None:
    server.reply = reasoning
    with pytest.raises(MissingError, match="gives no log-probabilities of the next token"):
        r2med.evaluate(system("bm25 | rank1:qwen-7b@2", server), TASK)

    server.alternatives = lambda prompt: {" true": -0.1, " false": -3.0}

    assert r2med.evaluate(system("bm25 | rank1:qwen-7b@2", server), TASK).metrics


def test_the_one_budget_covers_thoughts_and_verdicts(server: LLMServer) -> None:
    server.reply = reasoning
    server.alternatives = lambda prompt: {" true": -0.1, " false": -3.0}
    limits = Limits(tokens=12_000, concurrency=4, timeout=10, backoff=0.001)
    conditions = Conditions(llm_url=server.url, limits=limits, tell=lambda _: None)
    limited = System.from_spec("bm25 | rank1:qwen-7b[max_tokens=50]@20", conditions)

    with pytest.raises(LimitError, match="Everything that arrived is kept"):
        r2med.evaluate(limited, TASK)

    assert 0 < server.tokens <= 12_000
