from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from r2med.tasks.load import load_task
from r2med.tasks.task import Task
from tests.llm_server import LLMServer, running_llm_server
from tests.local_llm import smollm2_url  # noqa: F401 - a fixture

DOCUMENTS = {
    "iron": "Ferritin falls first when iron is lacking.",
    "gout": "Urate crystals in the joint mean gout.",
    "scurvy": "Bleeding gums and corkscrew hairs follow a lack of ascorbic acid.",
}
QUERIES = {
    "1": "My toe hurts at night after beer.",
    "2": "I am pale and crave ice.",
    "3": "My gums bleed and I eat no fruit.",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small task in the reference layout."""
    write(tmp_path / "corpus.jsonl", [{"id": i, "text": t} for i, t in DOCUMENTS.items()])
    write(tmp_path / "query.jsonl", [{"id": i, "text": t} for i, t in QUERIES.items()])
    pairs = {"1": "gout", "2": "iron", "3": "scurvy"}
    rows = [{"q_id": q, "p_id": p, "score": 1} for q, p in pairs.items()]
    write(tmp_path / "qrels.jsonl", rows)
    return tmp_path


@pytest.fixture
def task(folder: Path) -> Task:
    return load_task(folder)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LLMServer]:
    pytest.importorskip("aiohttp")
    for name in ("URL", "KEY", "CONFIG", "TOKENS", "MONEY", "CONCURRENCY", "TIMEOUT", "ATTEMPTS"):
        monkeypatch.delenv(f"R2MED_LLM_{name}", raising=False)
    with running_llm_server() as running:
        yield running


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
