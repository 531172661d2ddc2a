"""Pages of a folder with more systems than one page can show."""

from __future__ import annotations

from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest
from bench.store import make_results
from starlette.testclient import TestClient

from r2med.explore.app import create_app
from r2med.explore.library import DETAILED_ROWS, Library

SYSTEMS = DETAILED_ROWS + 10
TASK = "/task/demo/biology"


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    make_results(tmp_path / "results", 8 * SYSTEMS)
    return TestClient(create_app(Library(tmp_path / "results")), base_url="http://localhost")


def test_pages_of_a_task_show_its_best_systems_and_say_of_how_many(client: TestClient) -> None:
    page = client.get(TASK).text
    query = client.get(f"{TASK}/query/1").text
    tasks = client.get("/tasks").text

    assert page.count('<tr class="measured') == DETAILED_ROWS
    assert f"{DETAILED_ROWS} of {SYSTEMS} stored systems" in page
    assert f"of {SYSTEMS} stored</span>" in query
    assert f"{SYSTEMS} systems" in tasks
    assert page.count("<circle") < 2 * DETAILED_ROWS * page.count("<tr data-find")


def test_a_system_below_the_best_can_be_chosen(client: TestClient) -> None:
    by_score = client.get("/leaderboard.csv?suite=demo").text.splitlines()
    last = unescape(next(line for line in reversed(by_score) if "bm25[k1=" in line))
    system = last[last.index("bm25[k1=") : last.index("]") + 1]
    chosen = urlencode({"system": system})

    page = client.get(f"{TASK}?{chosen}").text
    query = client.get(f"{TASK}/query/1?{chosen}")

    assert f'<option value="{system}" selected>' in page
    assert page.count('<tr class="measured') == DETAILED_ROWS + 1
    assert query.status_code == 200 and system in query.text.replace("<wbr>", "")
