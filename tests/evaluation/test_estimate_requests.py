"""What a run would cost is known before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import r2med
from r2med.evaluation.estimate import estimate_requests
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.remote.budget import Limits, RequestEstimate
from r2med.systems.build import System
from tests.llm_server import LLMServer, running_llm_server

pytest.importorskip("aiohttp")

TASK = "demo/biology"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LLMServer]:
    for name in ("URL", "KEY", "CONFIG"):
        monkeypatch.delenv(f"R2MED_LLM_{name}", raising=False)
    with running_llm_server() as running:
        yield running


@pytest.fixture
def queries() -> int:
    return len(r2med.load_task(TASK).queries)


def system(text: str, server: LLMServer) -> System:
    quick = Limits(concurrency=4, timeout=10, backoff=0.001)
    return System.from_spec(text, Resources(RunOptions(llm_url=server.url, limits=quick)))


def paid(text: str, server: LLMServer) -> dict[str, RequestEstimate]:
    return dict(estimate_requests(system(text, server).stage, r2med.load_task(TASK)))


@pytest.mark.parametrize(
    ("text", "calls_per_query"),
    [
        ("bm25", {}),
        ("bm25 | listwise:gpt4@100", {"bm25 | listwise:gpt4@100": 9}),
        ("bm25 | listwise:gpt4@20", {"bm25 | listwise:gpt4@20": 1}),
        ("bm25@5 | pointwise:gpt4@10", {"bm25@5 | pointwise:gpt4@10": 5}),
        ("hyde:gpt4[n=2] | bm25", {"hyde:gpt4[n=2]": 2}),
        (
            "(hyde:gpt4 | bm25) + bm25-nano | pointwise:gpt4@2",
            {"hyde:gpt4": 1, "(hyde:gpt4 | bm25) + bm25-nano | pointwise:gpt4@2": 2},
        ),
    ],
)
def test_every_part_that_asks_a_model_is_counted(
    server: LLMServer, queries: int, text: str, calls_per_query: dict[str, int]
) -> None:
    found = paid(text, server)

    assert {part: each.calls for part, each in found.items()} == {
        part: calls * queries for part, calls in calls_per_query.items()
    }
    assert all(each.money for each in found.values())
    assert server.seen == []


def test_an_api_encoder_after_an_expander_encodes_what_was_generated_too(
    server: LLMServer, queries: int
) -> None:
    found = paid("hyde:gpt4 | openai", server)

    alone = paid("openai", server)["openai"]
    assert list(found) == ["hyde:gpt4", "hyde:gpt4 | openai"]
    assert found["hyde:gpt4 | openai"].prompt_tokens == pytest.approx(
        alone.prompt_tokens + queries * 400, rel=0.01
    )


def test_generations_of_a_file_are_counted_as_they_are(
    server: LLMServer, queries: int, tmp_path: Path
) -> None:
    file = tmp_path / "written.jsonl"
    ids = r2med.load_task(TASK).queries.ids.to_pylist()
    rows = (json.dumps({"id": name, "hy_doc": f"{name} " + "word " * 99}) for name in ids)
    file.write_text("\n".join(rows))

    found = paid(f'hyde:expert[generations="{file}"] | openai', server)

    [estimate] = found.values()
    alone = paid("openai", server)["openai"]
    assert estimate.prompt_tokens - alone.prompt_tokens == pytest.approx(queries * 125, rel=0.05)


@pytest.mark.parametrize(
    ("reranker", "tokens"), [("listwise:gpt4@20", 100), ("insertrank:gpt4@20", 400)]
)
def test_the_more_passages_an_answer_orders_the_longer_it_is(
    server: LLMServer, queries: int, reranker: str, tokens: int
) -> None:
    [estimate] = paid(f"bm25 | {reranker}", server).values()

    assert estimate.completion_tokens == tokens * queries


def test_answers_on_disk_say_how_long_others_will_be(server: LLMServer, queries: int) -> None:
    server.reply = lambda body: "seven words on vessels and their walls"
    r2med.evaluate(system("hyde:gpt4 | bm25", server), TASK)

    [estimate] = paid("hyde:gpt4[n=3] | bm25", server).values()

    assert (estimate.calls, estimate.cached) == (2 * queries, queries)
    assert estimate.completion_tokens == 7 * estimate.calls
    assert f"7 new tokens per answer, the mean of {queries} on disk" in estimate.basis
