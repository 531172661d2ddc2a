"""What a result says it cost is what the servers counted, whatever the pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import r2med
from r2med import RunOptions
from r2med.execution.usage import Usage
from r2med.remote.budget import Limits
from r2med.results.cost import cost_of
from tests.llm_server import LLMServer, running_llm_server, says
from tests.retrieve.small_task import own_task

pytest.importorskip("aiohttp")

#: US dollars per million tokens: of gpt4 for prompts and answers, and of the encoder.
PROMPT_PRICE, ANSWER_PRICE, EMBED_PRICE = 2.5, 10.0, 0.13
ENCODER = "api:m[url=URL,price=0.13]"
FIRST = [
    "bm25",
    ENCODER,
    f"bm25 + {ENCODER}",
    "hyde:gpt4[n=2] | bm25",
    f"hyde:gpt4[n=3,combine=fuse] | {ENCODER}",
    f"query2doc:gpt4[n=2,combine=fuse] | (bm25 + {ENCODER})",
    f"(hyde:gpt4 | bm25) + {ENCODER}",
]
RERANKERS = ["listwise:gpt4@3", "pointwise:gpt4@2", "listwise:gpt4@2", "insertrank:gpt4@3"]


@pytest.fixture(scope="module")
def server() -> Iterator[LLMServer]:
    with running_llm_server() as running:
        running.reply = reply
        yield running


def reply(body: dict[str, Any]) -> str:
    prompt = body["messages"][-1]["content"]
    numbers = re.findall(r"^\[(\d+)\] ", prompt, re.MULTILINE)
    return " > ".join(f"[{n}]" for n in reversed(numbers)) if numbers else "Score: 5"


def evaluate(spec: str, server: LLMServer, concurrency: int = 8) -> r2med.Result:
    options = RunOptions(llm_url=server.url, limits=Limits(concurrency=concurrency, backoff=0.001))
    return r2med.evaluate(
        spec.replace("URL", f'"{server.url}"'), own_task(), options=options, warn=lambda _: None
    )


def spent(server: LLMServer) -> float:
    """What the requests cost by the server's own count."""
    total = 0.0
    for request, (prompt, new) in zip(server.seen, server.billed, strict=True):
        embeds = request.path.endswith("/embeddings")
        prices = (EMBED_PRICE, 0.0) if embeds else (PROMPT_PRICE, ANSWER_PRICE)
        total += (prompt * prices[0] + new * prices[1]) / 1e6
    return total


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.sampled_from(FIRST), st.lists(st.sampled_from(RERANKERS), max_size=3))
@example("bm25", ["listwise:gpt4@3", "listwise:gpt4@3"])
@example("bm25", ["pointwise:gpt4@2", "pointwise:gpt4@2"])
@example(f"hyde:gpt4[n=3,combine=fuse] | {ENCODER}", [])
def test_booked_calls_tokens_and_money_are_those_the_servers_counted(
    server: LLMServer, tmp_path_factory: pytest.TempPathFactory, first: str, rerankers: list[str]
) -> None:
    server.seen.clear()
    server.billed.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(tmp_path_factory.mktemp("home")))
        patch.chdir(tmp_path_factory.mktemp("work"))

        result = evaluate(" | ".join([first, *rerankers]), server)

    costs = [cost for cost in result.record.costs if cost.calls]
    assert sum(cost.calls or 0 for cost in costs) == len(server.seen)
    assert sum(cost.tokens or 0 for cost in costs) == server.tokens
    assert sum(cost.money or 0.0 for cost in costs) == pytest.approx(spent(server))
    figures = [getattr(cost, field.name) for cost in costs for field in fields(Usage)]
    assert all(figure is None or figure >= 0 for figure in figures)


def test_two_passes_of_one_reranker_are_charged_and_described_separately(
    server: LLMServer, tmp_path: Path
) -> None:
    result = evaluate("bm25 | listwise:gpt4@3 | listwise:gpt4@3", server)

    passes = [cost for cost in result.record.costs if cost.stage == "rerank"]
    assert [cost.calls for cost in passes] == [len(own_task().queries)] * 2
    assert {"listwise:gpt4@3", "listwise:gpt4@3 (2)"} <= set(result.record.facts)


def test_the_time_of_requests_that_run_at_once_is_not_added_up(server: LLMServer) -> None:
    server.script[:] = [says("[1]", seconds=0.2)] * 3

    result = evaluate("bm25 | listwise:gpt4@3", server)

    [cost] = [cost for cost in result.record.costs if cost.stage == "rerank"]
    assert cost.request_p50 is not None and cost.request_p50 >= 0.2
    assert cost.answer_seconds is not None and cost.request_p95 is not None
    assert cost.request_p50 <= cost.request_p95
    assert cost.answer_seconds <= cost.seconds + 0.001
    assert cost_of([result]).seconds_per_query <= cost.seconds


def test_usage_adds_what_is_known_and_keeps_what_is_not() -> None:
    one, other = Usage(calls=2, money=0.5, request_p95=1.0), Usage(calls=3, request_p95=2.0)

    total = one + other

    assert (total.calls, total.money, total.tokens, total.request_p95) == (5, 0.5, None, 2.0)
