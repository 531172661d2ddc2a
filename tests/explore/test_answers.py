"""Pages show answers that could not be read, shares of judged documents and unjudged queries."""

from __future__ import annotations

from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import r2med
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.explore.app import create_app
from r2med.explore.bundle import write_bundle
from r2med.explore.library import Library
from r2med.explore.report import report_page
from r2med.remote.budget import Limits
from r2med.systems.build import System
from r2med.tasks.registry import find_suite
from tests.explore.conftest import write_lines
from tests.llm_server import LLMServer, running_llm_server
from tests.results.storing import ranks, store

pytest.importorskip("aiohttp")

TASK, SPEC = "demo/biology", "bm25 | listwise:qwen-7b@10"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LLMServer]:
    for name in ("URL", "KEY", "CONFIG"):
        monkeypatch.delenv(f"R2MED_LLM_{name}", raising=False)
    with running_llm_server() as running:
        running.reply = lambda body: "<think>Hard to say.</think>Good question!"
        yield running


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    return TestClient(create_app(Library(tmp_path / "results")), base_url="http://127.0.0.1")


def page(client: TestClient, path: str, **values: str | list[str]) -> str:
    answer = client.get(path, params=values)
    assert answer.status_code == 200, answer.text
    return as_text(answer.text)


def as_text(html: str) -> str:
    return " ".join(unescape(html.replace("<wbr>", "")).split())


def test_a_reused_reranker_without_readable_answers_is_marked_on_every_page(
    server: LLMServer, client: TestClient, tmp_path: Path
) -> None:
    options = RunOptions(llm_url=server.url, limits=Limits(concurrency=4, backoff=0.001))
    folder = tmp_path / "results"
    r2med.evaluate("bm25", TASK, results=folder)
    for _ in range(2):
        system = System.from_spec(SPEC, Resources(options, warn=lambda message: None))
        result = r2med.evaluate(system, TASK, results=folder)
    queries = result.record.task.queries
    query_id = result.scores.query_ids[0].as_py()
    note = f"† {SPEC}: {queries} answers of the model: {queries} unread; {queries} had no effect."

    assert result.reused
    for path in ("/leaderboard?suite=demo", f"/task/{TASK}", f"/task/{TASK}/query/{query_id}"):
        assert note in page(client, path)
    assert note in page(client, "/system", suite="demo", system=SPEC)
    assert note in page(client, "/compare", scope=TASK, system=[SPEC, "bm25"])
    query = page(client, f"/task/{TASK}/query/{query_id}", system=SPEC)
    assert "Hard to say." in query and "Good question!" in query
    assert "1 answer, 1 could not be read" in query
    report = " ".join(
        unescape(report_page(SPEC, "bm25", task=TASK, results=folder).replace("<wbr>", "")).split()
    )
    assert note in report


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    """A task of four queries of which two have no judgements."""
    folder = tmp_path / "ward"
    words = ("fever", "cough", "rash", "gout")
    write_lines(folder / "corpus.jsonl", [{"id": f"d-{w}", "text": f"{w} at night"} for w in words])
    write_lines(folder / "query.jsonl", [{"id": w, "text": f"a child with {w}"} for w in words])
    judged: list[dict[str, object]] = [
        {"q_id": word, "p_id": f"d-{word}", "score": 1} for word in words[:2]
    ]
    write_lines(folder / "qrels.jsonl", judged)
    for system in ("bm25", "bm25-lucene"):
        r2med.evaluate(system, folder, results=tmp_path / "results")
    return folder


def test_queries_without_judgements_are_counted_and_have_pages(
    client: TestClient, ward: Path
) -> None:
    board = page(client, "/leaderboard?suite=local")
    task = page(client, "/task/ward")
    query = page(client, "/task/ward/query/gout")
    compared = page(client, "/compare", scope="ward", system=["bm25", "bm25-lucene"])

    assert "2 queries have no judgements and are not scored." in board
    assert "2 queries without judgements, not scored" in task
    assert "/task/ward/query/gout" in task and "/task/ward/query/gout" in compared
    assert "This query has no judgements, so it is not scored." in query
    assert "a child with" in query and "d-gout" in query
    assert client.get("/task/ward/query/nothing").status_code == 404


def test_every_measured_row_of_the_leaderboard_has_its_share_of_judged_documents(
    client: TestClient, ward: Path
) -> None:
    board = page(client, "/leaderboard?suite=local")

    assert board.count('data-label="J@10"') == 2
    assert "percentage of the first 10 documents with a judgement; below 10 %" in board


@pytest.mark.parametrize(
    ("rank", "sentence"),
    [
        (2, "It is significantly better than every other measured system (p < .001)."),
        (
            0,
            "It scores higher than every other measured system on the judged documents "
            "(p < .001). Less than 10 % of the first 10 documents of bm25-lucene are judged",
        ),
    ],
    ids=["one judged document of ten", "none"],
)
def test_the_leader_is_called_better_only_where_enough_documents_are_judged(
    client: TestClient, tmp_path: Path, rank: int, sentence: str
) -> None:
    for entry in find_suite("demo").entries:
        store(tmp_path / "results", "bm25", entry.name, ranks(*[1] * 12))
        store(tmp_path / "results", "bm25-lucene", entry.name, ranks(*[rank] * 12))

    assert sentence in page(client, "/leaderboard", suite="demo")


def test_a_bundle_has_pages_of_queries_without_judgements(ward: Path, tmp_path: Path) -> None:
    write_bundle(tmp_path / "site", Library(tmp_path / "results"), texts=False)

    assert any("gout" in path.name for path in (tmp_path / "site").rglob("*.html"))
