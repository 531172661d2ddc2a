"""A small task with answers, and traces on it whose scores can be worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from r2med.tasks.load import load_task
from r2med.tasks.task import Task
from tests.expand.conftest import write
from tests.llm_server import LLMServer, running_llm_server

DOCUMENTS = {
    "gout-1": "Urate crystals in the joint mean gout.",
    "gout-2": "Podagra wakes the sleeper; urate is the cause.",
    "iron-1": "Ferritin falls first when iron is lacking.",
    "scurvy-1": "Bleeding gums and corkscrew hairs follow a lack of ascorbic acid.",
    "other-1": "Beer is made of barley and hops.",
}
QUERIES = {
    "1": ("My toe hurts at night after beer.", "Gout (urate arthropathy)"),
    "2": ("I am pale and crave ice.", "Iron deficiency"),
    "3": ("My gums bleed.\nA. Scurvy\nB. Leukaemia\nC. Gingivitis", "A"),
}
POSITIVES = {"1": ("gout-1", "gout-2"), "2": ("iron-1",), "3": ("scurvy-1",)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The task in the reference layout."""
    home = tmp_path / "clinic"
    write(home / "corpus.jsonl", [{"id": i, "text": t} for i, t in DOCUMENTS.items()])
    queries = [{"id": i, "text": t, "answer": a} for i, (t, a) in QUERIES.items()]
    write(home / "query.jsonl", [dict(query) for query in queries])
    rows = [{"q_id": q, "p_id": p, "score": 1} for q, ids in POSITIVES.items() for p in ids]
    write(home / "qrels.jsonl", [dict(row) for row in rows])
    return home


@pytest.fixture
def task(folder: Path) -> Task:
    return load_task(folder)


@pytest.fixture
def server() -> Iterator[LLMServer]:
    pytest.importorskip("aiohttp")
    with running_llm_server() as running:
        yield running
