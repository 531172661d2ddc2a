"""The search server against the client of the package `mcp`, over HTTP and stdio."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from r2med.agents.call_log import read_log
from r2med.tasks.load import load_task
from r2med.tasks.task import positives_of
from tests.cli.running import run
from tests.serve.serving import TASK, serve

mcp = pytest.importorskip("mcp")
pytestmark = pytest.mark.extra("serve")
PROGRAM = "from r2med.cli import main; main()"


def talk(target: Any, steps: Callable[[Any], Awaitable[None]], **settings: Any) -> None:
    """Connect a client and let it take its steps."""

    async def connect() -> None:
        async with mcp.Client(target, **settings) as client:
            await steps(client)

    anyio.run(connect)


def choose_query() -> tuple[str, str, str]:
    """Return the id of a query with a short answer, that answer, and words of a positive."""
    task = load_task(TASK)
    positives = positives_of(task.judgements)
    for query_id, answer in zip(
        task.queries.ids.to_pylist(), task.queries.answers.to_pylist(), strict=True
    ):
        if len(answer.split()) <= 4:
            words = task.document(positives[query_id][0]).split()[:30]
            return query_id, answer, " ".join(words)
    raise AssertionError("no query with a short answer")


QUERY, ANSWER, WORDS = choose_query()


async def diagnose(client: Any) -> None:
    """An agent that searches twice, cites what it found first, and answers."""
    tools = await client.list_tools()
    assert [tool.name for tool in tools.tools] == ["search", "submit_answer"]
    assert "session" not in json.dumps([tool.input_schema for tool in tools.tools])
    found = await client.call_tool("search", {"query": WORDS})
    results = found.structured_content["results"]
    assert json.loads(found.content[0].text) == found.structured_content and not found.is_error
    await client.call_tool("search", {"query": "fever and a rash"})
    answer = {"answer": ANSWER, "confidence": 0.9, "citations": [results[0]["id"]]}
    recorded = await client.call_tool("submit_answer", answer)
    assert recorded.structured_content == {"recorded": True}


async def go_wrong(client: Any) -> None:
    """Calls that are refused; the server goes on."""
    for tool, arguments in (
        ("search", {"query": ""}),
        ("search", {}),
        ("submit_answer", {"answer": "x", "confidence": 7}),
        ("no_such_tool", {}),
    ):
        refused = await client.call_tool(tool, arguments)
        assert refused.is_error, (tool, arguments)


def check_trace(log: Path, query_id: str) -> None:
    """The log becomes a trace with known scores."""
    outcome = run("agents", "score", str(log), "--task", TASK, "--json")
    assert outcome.code == 0, outcome.err
    [agent] = json.loads(outcome.out)["agents"]
    [trace] = agent["scores"]
    assert (trace["query_id"], trace["searches"], trace["correct"]) == (query_id, 2, 1.0)
    assert (trace["saw_positive"], trace["first_positive"], trace["used_positive"]) == (1, 1, 1)
    assert trace["confidence"] == 0.9 and agent["calibration"]["answers"] == 1
    assert agent["calibration"]["error"] == pytest.approx(0.1)


@pytest.mark.parametrize("mode", ["auto", "legacy"], ids=["current protocol", "older protocol"])
def test_an_agent_over_http_leaves_a_trace(tmp_path: Path, mode: str) -> None:
    with serve(tmp_path / "log") as server:
        talk(f"{server.url}/mcp?session={QUERY}", diagnose, mode=mode)
        talk(f"{server.url}/mcp?session={QUERY}", go_wrong, mode=mode)

    check_trace(tmp_path / "log", QUERY)


def test_an_agent_over_stdio_leaves_a_trace(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = ["--stdio", "--session", QUERY, "--log", str(log)]
    parameters = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-c", PROGRAM, "serve", "bm25", "--task", TASK, *options],
        env=dict(os.environ),
        cwd=tmp_path,
    )

    talk(parameters, diagnose)
    talk(parameters, go_wrong)

    check_trace(log, QUERY)


def test_sessions_of_several_clients_stay_apart(tmp_path: Path) -> None:
    async def search_at_once(url: str) -> None:
        async with anyio.create_task_group() as group:
            for number in range(1, 6):
                group.start_soon(search, f"{url}/mcp?session={number}", f"word{number} fever")

    async def search(url: str, words: str) -> None:
        async with mcp.Client(url) as client:
            for _ in range(3):
                await client.call_tool("search", {"query": words})

    with serve(tmp_path / "log") as server:
        anyio.run(search_at_once, server.url)

    logged = read_log(tmp_path / "log", warn=pytest.fail).calls
    assert sorted((call.session, call.text) for call in logged) == sorted(
        (str(number), f"word{number} fever") for number in range(1, 6) for _ in range(3)
    )
