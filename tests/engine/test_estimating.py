"""What a run would cost is known before, and never more than was said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import r2med
from r2med.engine.estimating import estimates
from r2med.remote.budget import Estimate, Limits
from r2med.results.cost import cost_of
from r2med.retrieve.conditions import Conditions
from r2med.systems.build import System
from tests.llm_server import LLMServer, running_llm_server

pytest.importorskip("aiohttp")

TASK = "demo/biology"
QUERIES = 16


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LLMServer]:
    for name in ("URL", "KEY", "CONFIG"):
        monkeypatch.delenv(f"R2MED_LLM_{name}", raising=False)
    with running_llm_server() as running:
        yield running


def system(text: str, server: LLMServer) -> System:
    quick = Limits(concurrency=4, timeout=10, backoff=0.001)
    return System.from_spec(text, Conditions(llm_url=server.url, limits=quick))


def paid(text: str, server: LLMServer) -> dict[str, Estimate]:
    return dict(estimates(system(text, server).stage, r2med.load_task(TASK)))


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("bm25", {}),
        ("bm25 | listwise:gpt4@100", {"bm25 | listwise:gpt4@100": 9 * QUERIES}),
        ("bm25 | listwise:gpt4@20", {"bm25 | listwise:gpt4@20": QUERIES}),
        ("bm25@5 | pointwise:gpt4@10", {"bm25@5 | pointwise:gpt4@10": 5 * QUERIES}),
        ("hyde:gpt4[n=2] | bm25", {"hyde:gpt4[n=2]": 2 * QUERIES}),
        (
            "(hyde:gpt4 | bm25) + bm25-nano | pointwise:gpt4@2",
            {
                "hyde:gpt4": QUERIES,
                "(hyde:gpt4 | bm25) + bm25-nano | pointwise:gpt4@2": 2 * QUERIES,
            },
        ),
    ],
)
def test_every_part_that_asks_a_model_is_counted(
    server: LLMServer, text: str, calls: dict[str, int]
) -> None:
    found = paid(text, server)

    assert {part: each.calls for part, each in found.items()} == calls
    assert all(each.most_money for each in found.values())
    assert server.seen == []


def test_an_api_encoder_after_an_expander_encodes_what_was_generated_too(
    server: LLMServer,
) -> None:
    found = paid("hyde:gpt4 | openai", server)

    assert list(found) == [
        "hyde:gpt4",
        "hyde:gpt4 | openai",
        "hyde:gpt4 | openai (generated texts)",
    ]
    assert found["hyde:gpt4 | openai (generated texts)"].prompt_tokens > 0


def wordy(body: dict[str, Any]) -> str:
    """Searches as long as it may, in both agents' tags, and then goes on."""
    return "<search> iron and gout </search> " * 20


@pytest.mark.parametrize(
    "text",
    [
        "hyde:gpt4 | bm25",
        "lamer:gpt4 | bm25",
        "search-r1:gpt4[max_tokens=200,turns=2] | bm25",
        "search-o1:gpt4[max_tokens=200,turns=2,tokens=0] | bm25",
        "bm25 | listwise:gpt4[window=4,step=2]@10",
        "bm25 | pointwise:gpt4@3",
    ],
)
def test_no_run_uses_more_than_was_said(server: LLMServer, text: str) -> None:
    server.reply = wordy
    [most] = [each.most_tokens for each in paid(text, server).values()]

    spent = cost_of([r2med.evaluate(system(text, server), TASK)])

    assert most is not None and spent.query_tokens is not None
    assert 0 < spent.query_tokens <= most


def test_a_model_whose_answers_have_no_limit_has_no_upper_bound(
    server: LLMServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    config = tmp_path / "llms.toml"
    config.write_text('[endless]\nmodel = "endless"\nmax_tokens = ""\n')
    monkeypatch.setenv("R2MED_LLM_CONFIG", str(config))

    found = paid("bm25 | pointwise:endless@2", server)

    assert [each.most_tokens for each in found.values()] == [None]
