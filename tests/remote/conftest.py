from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.llm_server import LLMServer, running_llm_server


@pytest.fixture
def server() -> Iterator[LLMServer]:
    pytest.importorskip("aiohttp")
    with running_llm_server() as running:
        yield running


@pytest.fixture(autouse=True)
def no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "KEY", "CONFIG", "TOKENS", "MONEY", "CONCURRENCY", "TIMEOUT", "ATTEMPTS"):
        monkeypatch.delenv(f"R2MED_LLM_{name}", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("HTTP_PROXY", raising=False)
    monkeypatch.delenv("http_proxy", raising=False)
