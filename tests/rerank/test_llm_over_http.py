"""LLM rerankers through the real client against a server on loopback that misbehaves."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import r2med
from r2med.errors import LimitError, MissingError
from r2med.evaluation.explain import explain
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.paths import home_folder
from r2med.remote.budget import Limits
from r2med.report.drawing import draw
from r2med.rerank.traces import read_rerank_answers
from r2med.results.compare import compare
from r2med.results.evaluation import Evaluation, Stored
from r2med.results.export import export_csv, export_mteb, export_trec
from r2med.results.leaderboard import leaderboard
from r2med.results.stage_record import AnswerCounts
from r2med.runs.run import sort_lists
from r2med.systems.build import System
from r2med.tasks.load import load_task
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
    return System.from_spec(
        text, Resources(RunOptions(llm_url=server.url, limits=QUICK), warn=heard)
    )


def text_of(value: Any) -> str:
    out = io.StringIO()
    draw(value, Console(file=out, width=200))
    return out.getvalue()


def test_a_list_is_reranked_end_to_end(server: LLMServer) -> None:
    first = r2med.evaluate("bm25", TASK)

    result = r2med.evaluate(system("bm25 | listwise:qwen-7b@10", server), TASK)

    measured = sort_lists(first.run, "trec")
    for query in measured.query_ids.to_pylist():
        before = [document for document, _ in measured.ranking(query)]
        after = [document for document, _ in result.run.ranking(query)]
        assert after == before[:10][::-1] + before[10:]


def test_calls_tokens_and_unread_answers_are_in_the_result(server: LLMServer) -> None:
    told: list[str] = []
    server.script.extend([EMPTY, REFUSING])

    result = r2med.evaluate(
        system("bm25 | listwise:qwen-7b@10", server, told), TASK, warn=told.append
    )

    queries = result.record.task.queries
    cost = next(cost for cost in result.record.costs if cost.stage == "rerank")
    assert cost.calls == queries
    assert result.record.answers == AnswerCounts(queries, unread=1, refused=1, fallen_back=2)
    assert cost.tokens and cost.tokens > 0
    assert any(f"2 of {queries} answers could not be read" in message for message in told)


def test_a_reranker_without_readable_answers_is_marked_everywhere_also_when_reused(
    server: LLMServer, tmp_path: Path
) -> None:
    server.reply = lambda body: "Good question!"
    spec = "bm25 | listwise:qwen-7b@10"
    queries = r2med.evaluate(system(spec, server), TASK).record.task.queries

    reused = r2med.evaluate(system(spec, server), TASK)

    assert reused.reused
    sentence = f"{queries} answers of the model: {queries} unread; {queries} had no effect"
    assert reused.record.stages[-1].answers == AnswerCounts(
        queries, unread=queries, fallen_back=queries
    )
    both = Evaluation([reused, r2med.evaluate("bm25", TASK)])
    board = leaderboard(suite="demo", task=TASK)
    for shown in (text_of(both), text_of(Stored([reused])), text_of(board)):
        assert f"{spec} †" in " ".join(shown.split())
        assert sentence in " ".join(shown.split())
    assert both.to_json()[0]["answers"]["unread"] == queries
    [row] = [row for row in board.to_json()["rows"] if row["system"] == spec]
    assert row["answers"]["unread"] == queries
    export_csv([reused], tmp_path)
    assert sentence in (tmp_path / "results.csv").read_text()
    told: list[str] = []
    export_trec([reused], tmp_path, told.append)
    assert (tmp_path / "notes.txt").read_text() == f"† {spec}: {sentence}.\n"
    [exported] = export_mteb([reused], tmp_path, told.append)
    [scores] = json.loads(exported.read_text())["scores"]["test"]
    assert (scores["answers_total"], scores["answers_unread"]) == (queries, queries)
    assert told == [f"† {spec}: {sentence}."] * 2
    comparison = compare(*both.results)
    assert f"† {spec}: {sentence}." in " ".join(text_of(comparison).split())
    assert comparison.to_json()["answers"] == [both.to_json()[0]["answers"], None]
    assert sentence in comparison.to_csv()


def test_the_query_page_shows_what_a_reranker_thought_and_answered(server: LLMServer) -> None:
    server.reply = lambda body: "<think>Hard to say.</think>Good question!"
    result = r2med.evaluate(system("bm25 | listwise:qwen-7b@10", server), TASK)
    task = load_task(TASK)
    query_id = task.queries.ids[0].as_py()

    page = explain(result.system, task, query_id)

    [answer] = page.rerank_answers
    assert (answer.thought, answer.answer, answer.is_read) == (
        "Hard to say.",
        "Good question!",
        False,
    )
    shown = text_of(page)
    assert "thought: Hard to say." in shown
    assert "answer: Good question!" in shown


@pytest.mark.parametrize(
    "trace", [None, "", "x", "../secret.jsonl", "rerank-traces/..", "/etc/x/y"]
)
def test_a_trace_outside_its_folder_is_not_read(trace: str | None, tmp_path: Path) -> None:
    (home_folder() / "secret.jsonl").write_text("{}")

    assert read_rerank_answers(trace, "q") == []


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
    traced = (home_folder() / facts["trace"]).read_text(encoding="utf-8").splitlines()
    assert len(traced) == facts["answers"]
    assert {json.loads(line)["query_id"] for line in traced} == set(
        result.run.query_ids.to_pylist()
    )

    r2med.evaluate(system(text, server), TASK, force=True)

    assert len(server.seen) == facts["calls"]


def test_a_server_without_log_probabilities_is_refused(server: LLMServer) -> None:
    server.reply = reasoning
    with pytest.raises(MissingError, match="does not return log-probabilities of the next token"):
        r2med.evaluate(system("bm25 | rank1:qwen-7b@2", server), TASK)

    server.alternatives = lambda prompt: {" true": -0.1, " false": -3.0}

    assert r2med.evaluate(system("bm25 | rank1:qwen-7b@2", server), TASK).metrics


def test_the_one_budget_covers_thoughts_and_verdicts(server: LLMServer) -> None:
    server.reply = reasoning
    server.alternatives = lambda prompt: {" true": -0.1, " false": -3.0}
    limits = Limits(tokens=12_000, concurrency=4, timeout=10, backoff=0.001)
    resources = Resources(RunOptions(llm_url=server.url, limits=limits), warn=lambda _: None)
    limited = System.from_spec("bm25 | rank1:qwen-7b[max_tokens=50]@20", resources)

    with pytest.raises(LimitError, match="All answers received so far are stored"):
        r2med.evaluate(limited, TASK)

    assert 0 < server.tokens <= 12_000
