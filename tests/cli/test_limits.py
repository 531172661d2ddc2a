"""Limits of tokens and money hold for a whole command, whatever it asks models for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import r2med
from tests.cli.running import Outcome, run
from tests.llm_server import LLMServer, running_llm_server, slow

#: US dollars per million tokens of the model `priced`.
PRICE_IN, PRICE_OUT = 1_000.0, 2_000.0
MODEL = f"""
[priced]
model = "priced"
max_tokens = 200
price_in = {PRICE_IN}
price_out = {PRICE_OUT}
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LLMServer]:
    """Answers are as long as requests allow, and prompts have as many tokens as bytes."""
    pytest.importorskip("aiohttp")
    with running_llm_server() as running:
        config = tmp_path / "llms.toml"
        config.write_text(MODEL)
        monkeypatch.setenv("R2MED_LLM_CONFIG", str(config))
        monkeypatch.setenv("R2MED_LLM_URL", running.url)
        monkeypatch.setenv("R2MED_EMBED_URL", running.url)
        running.reply = as_long_as_allowed
        running.count = lambda text: len(text.encode())
        running.script = [slow(0.005)] * 200
        yield running


def as_long_as_allowed(body: dict[str, Any]) -> str:
    """An answer of an agent that searches first, filled up with words."""
    tag = "<search>blood</search> " if len(body["messages"]) < 4 else "<answer>blood</answer> "
    return tag + "word " * (int(body["max_tokens"]) - 1)


def billed(server: LLMServer, what: str) -> float:
    return server.tokens if what == "tokens" else server.cost(PRICE_IN, PRICE_OUT)


COMMANDS = {
    "generate": ("generate", "hyde", "--llm", "priced", "--n", "2"),
    "agents": ("generate", "search-r1", "--llm", "priced"),
    "expanders": ("eval", "hyde:priced | bm25", "query2doc:priced | bm25"),
    "expander and reranker": ("eval", "hyde:priced | bm25 | listwise:priced@10"),
    "pointwise": ("eval", "bm25 | pointwise:priced@5"),
    "encoder": ("eval", f"api:embed[most_texts=4,price={PRICE_IN}]"),
    "encoder and expander": ("eval", f"hyde:priced | api:embed[most_texts=4,price={PRICE_IN}]"),
}
EVERYTHING = ("--task", "demo", "--concurrency", "64", "--json")


@pytest.mark.parametrize("limit", [("tokens", 40_000), ("cost", 30.0)], ids=str)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_command_stops_at_its_limit_and_never_beyond(
    server: LLMServer, command: tuple[str, ...], limit: tuple[str, float]
) -> None:
    what, most = limit

    stopped = run(*command, *EVERYTHING, f"--max-{what}", str(most))

    assert stopped.code == 3, stopped.err
    assert "stopped: " in stopped.err
    assert "Raise the limit and run again" in stopped.err
    assert re.search(r"\d+ of \d+ (results|tasks) are finished", stopped.err)
    assert isinstance(json.loads(stopped.out), list)
    assert most * 0.5 < billed(server, what) <= most


def test_a_stopped_command_goes_on_when_given_more(server: LLMServer) -> None:
    command = ("eval", "hyde:priced | bm25 | listwise:priced@10", "--task", "demo/biology")
    outcomes: list[Outcome] = []

    while not outcomes or (outcomes[-1].code == 3 and len(outcomes) < 40):
        outcomes.append(run(*command, "--max-tokens", "15000", "--json"))

    assert [outcome.code for outcome in outcomes] == [3] * (len(outcomes) - 1) + [0]
    assert len(outcomes) > 2
    prompts = [json.dumps(body["messages"]) for body in server.bodies]
    queries = len(r2med.load_task("demo/biology").queries)
    assert len(prompts) == len(set(prompts)) == 2 * queries


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_limit_below_one_request_is_refused_with_the_figure_that_would_do(
    server: LLMServer, command: tuple[str, ...]
) -> None:
    refused = run(*command, *EVERYTHING, "--max-tokens", "100")
    assert refused.code == 2, refused.err
    assert not server.seen

    figure = re.search(r"Give at least --max-tokens (\d+)", refused.err)
    assert figure
    allowed = run(*command, *EVERYTHING, "--max-tokens", figure[1])

    assert allowed.code == 3, allowed.err
    assert server.seen
    assert server.tokens <= int(figure[1])


@pytest.mark.parametrize(
    "command",
    [
        ("generate", "hyde", "--llm", "unpriced"),
        ("eval", "bm25 | pointwise:unpriced@5"),
        ("eval", "hyde:unpriced | bm25"),
        ("eval", "api:embed"),
    ],
    ids=lambda command: command[1],
)
def test_a_limit_of_money_without_a_price_is_refused(
    server: LLMServer, command: tuple[str, ...]
) -> None:
    refused = run(*command, *EVERYTHING, "--max-cost", "5")

    assert refused.code == 2, refused.err
    assert "no price is known for" in refused.err
    assert not server.seen
