"""The vendors' own SDKs send the same requests and read the same vectors from the same server."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.llm_server import LLMServer, running_llm_server
from tests.retrieve.api.test_api import retriever
from tests.retrieve.small_task import own_task

pytest.importorskip("aiohttp")

TEXTS = {"d1": "insulin dose", "d2": 'a "quoted"\ncase é', "d3": "heart"}


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with running_llm_server() as running:
        yield running


def ours(server: LLMServer, name: str) -> tuple[dict[str, object], NDArray[np.float32]]:
    task = own_task(TEXTS, {"q1": "ask"})
    searching = retriever(name, server.url)
    vectors = searching.encode(task, "document", list(TEXTS.values())).matrix()
    return server.bodies[-1], vectors


def test_openai(server: LLMServer) -> None:
    openai = pytest.importorskip("openai")
    body, vectors = ours(server, "openai-raw")

    client = openai.OpenAI(base_url=server.url, api_key="x", max_retries=0)
    data = client.embeddings.create(input=body["input"], model="text-embedding-3-large").data

    assert server.bodies[-1] == body
    np.testing.assert_allclose(vectors, _in_order(TEXTS, body, [row.embedding for row in data]))


@pytest.mark.filterwarnings("ignore")
def test_voyage(server: LLMServer) -> None:
    voyageai = pytest.importorskip("voyageai")
    body, vectors = ours(server, "voyage-raw")

    client = voyageai.Client(api_key="x", base_url=server.url, max_retries=1)
    found = client.embed(body["input"], model="voyage-3", input_type="document").embeddings

    theirs = {k: v for k, v in server.bodies[-1].items() if v is not None and k != "truncation"}
    assert theirs == body
    np.testing.assert_allclose(vectors, _in_order(TEXTS, body, found))


def test_openai_chat(server: LLMServer) -> None:
    openai = pytest.importorskip("openai")
    from r2med.remote.budget import Limits
    from r2med.remote.completions import ChatRequest, Message
    from tests.remote.asking import open_chat

    with open_chat("gpt4", url=server.url, limits=Limits(concurrency=1)) as chat:
        text = chat.complete([ChatRequest((Message("user", "why?"),))])[0].text
    ours_sent = server.bodies[-1]

    client = openai.OpenAI(base_url=server.url, api_key="x", max_retries=0)
    theirs = client.chat.completions.create(
        model="gpt-4o-2024-11-20",
        messages=[{"role": "user", "content": "why?"}],
        temperature=0.8,
        top_p=0.8,
    )

    assert server.bodies[-1] == ours_sent
    assert theirs.choices[0].message.content == text


def _in_order(
    texts: dict[str, str], body: dict[str, object], vectors: list[list[float]]
) -> list[list[float]]:
    by_text = dict(zip(body["input"], vectors, strict=True))  # type: ignore[call-overload]
    return [by_text[text] for text in texts.values()]
