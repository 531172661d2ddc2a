"""Results on a folder of the user's own: their leaderboard, their texts, their report."""

from __future__ import annotations

import re
import shutil
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from r2med.explore.app import create_app
from r2med.explore.library import Library
from r2med.explore.report import report_page
from tests.cli.running import run
from tests.explore.conftest import write_lines

WORDS = ("fever", "cough", "rash", "gout", "colic", "angina")


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with results of three systems, the worst of which was run last."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "clinic"
    corpus: list[dict[str, object]] = [
        {"id": f"{word}{n}", "text": f"{word} " * n + "rest in bed " * (3 * n * n)}
        for word in WORDS
        for n in (1, 2, 3)
    ]
    write_lines(folder / "corpus.jsonl", corpus)
    queries: list[dict[str, object]] = [
        {"id": word, "text": f"a patient with {word} on the ward"} for word in WORDS
    ]
    write_lines(folder / "query.jsonl", queries)
    judged: list[dict[str, object]] = [
        {"q_id": word, "p_id": f"{word}{3 if place < 4 else 1}", "score": 1}
        for place, word in enumerate(WORDS)
    ]
    write_lines(folder / "qrels.jsonl", judged)
    for system in ("bm25", "bm25-lucene", "bm25[b=1]"):
        assert run("eval", system, "--task", str(folder)).code == 0
    return folder


@pytest.fixture
def client(clinic: Path) -> TestClient:
    return _client()


def test_own_data_has_a_leaderboard_which_opens_where_nothing_else_was_measured(
    client: TestClient,
) -> None:
    first = client.get("/").text
    system = client.get("/system?suite=local&system=bm25")
    compared = client.get("/compare?suite=local&system=bm25&system=bm25-lucene")

    assert "<title>Your data leaderboard" in first
    assert '<option value="local" selected>Your data</option>' in first
    assert client.get("/leaderboard?suite=local").text == first
    assert client.get("/leaderboard.csv?suite=local").text.count("clinic") >= 1
    assert client.get("/plot/means.svg?suite=local").status_code == 200
    assert system.status_code == 200 and "is rank" in system.text
    assert compared.status_code == 200 and "on Your data, 6 queries" in compared.text
    assert "/system?suite=local&amp;system=bm25" in first
    assert '<option value="full" selected' in client.get("/leaderboard?suite=full").text


def test_without_own_data_no_such_leaderboard_is_offered(tmp_path: Path) -> None:
    client = _client(tmp_path)

    assert 'value="local"' not in client.get("/").text
    assert client.get("/leaderboard?suite=local").status_code == 400


def test_a_bundle_opens_the_leaderboard_of_own_data_and_has_its_texts(clinic: Path) -> None:
    done = run("explore", "--bundle", "site")

    assert done.code == 0, done.err
    index = Path("site/index.html").read_text(encoding="utf-8")
    assert "<title>Your data leaderboard" in index
    assert index.count("leaderboard/full.html") == 1
    assert "left out" not in done.err
    [query] = Path("site").glob("task/*/query/gout-*.html")
    assert "a patient with gout on the ward" in query.read_text(encoding="utf-8")


def test_texts_are_read_where_the_result_says_that_its_data_is(client: TestClient) -> None:
    page = client.get("/task/clinic/query/gout?system=bm25").text

    assert "a patient with gout on the ward" in page
    assert "has its positive in its first 10" in page
    assert 'value="clinic"' in client.get("/try").text


def test_data_that_is_gone_is_named_with_its_place_and_what_to_do(clinic: Path) -> None:
    elsewhere = clinic.parent / "elsewhere" / "clinic"
    shutil.copytree(clinic, elsewhere)
    shutil.rmtree(clinic)

    page = unescape(_client().get("/task/clinic").text)
    lacking = run("explore", "--bundle", "site")
    moved = unescape(_client(tasks=str(elsewhere)).get("/task/clinic").text)

    assert f"The data of clinic was in {clinic}, which is gone." in page
    assert "r2med explore --task FOLDER" in page
    assert "clinic: its texts and judgements are left out. The data of clinic was in" in lacking.err
    assert str(clinic) not in Path("site/tasks.html").read_text(encoding="utf-8")
    assert "which is gone" not in moved


def test_a_report_of_own_data_names_the_best_and_whether_it_can_be_told_apart(clinic: Path) -> None:
    page = re.sub("</?wbr>", "", unescape(report_page()))
    [answer] = re.findall(r'<p class="answer">(.*?)</p>', page)
    [table] = re.findall(r'<table class="board.*?</table>', page, re.S)
    means = [float(mean) for mean in re.findall(r'number strong mean">([\d.]+)<', table)]

    sure = r"with [\d.]+ \(95 % interval .*\) over 6 queries"
    assert re.match(rf"\S+ leads the 3 measured systems on your data, {sure}", answer)
    assert "It does not differ significantly from" in answer
    assert len(means) == 3 and means == sorted(means, reverse=True)
    assert 'class="span"' in table and "Rows that share a band" in table


@pytest.mark.parametrize("scope", ["scope", "task"])
def test_a_difference_that_may_be_chance_is_no_victory(client: TestClient, scope: str) -> None:
    page = client.get(f"/compare?{scope}=clinic&system=bm25&system=bm25[b=1]").text
    [answer] = re.findall(r'<p class="answer">(.*?)</p>', page)

    assert re.search(r"No significant difference between .* higher \(.*; p = [.\d]+[ )]", answer)
    assert "beats" not in answer


def _client(folder: str | Path = "r2med-results", tasks: str | None = None) -> TestClient:
    return TestClient(create_app(Library(folder, tasks=tasks)), base_url="http://localhost")


def test_a_sample_of_a_task_is_named_as_the_reason_why_its_texts_are_missing() -> None:
    done = run("eval", "bm25", "--task", "demo/biology", "--sample", "3")
    assert done.code == 0, done.err

    bundled = run("explore", "--bundle", "site")

    assert "it is a sample of a task" in bundled.err and "--task FOLDER" not in bundled.err
