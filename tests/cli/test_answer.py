"""`r2med answer`: the whole flow with a scripted model, killed and resumed, and its pages."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from r2med.explore.app import create_app
from r2med.explore.library import Library
from r2med.tasks.load import load_task
from tests.answer.making import grade
from tests.cli.running import Outcome, run, start
from tests.llm_server import LLMServer, running_llm_server, slow

TASK = ("--task", "demo/medqa-diag")
SYSTEMS = ("bm25", "bm25-nano")
NAME = "scripted-k3"
QUERIES = len(load_task("demo/medqa-diag").queries.ids)
#: Closed-book and oracle, and retrieved and distracted for each system.
ANSWERS = QUERIES * (2 + 2 * len(SYSTEMS))


class Reader:
    """A model that answers rightly where a positive is shown, and cites it."""

    def __init__(self) -> None:
        task = load_task("demo/medqa-diag")
        positives: dict[str, list[str]] = {}
        for query_id, judged in task.judgements.by_query().items():
            texts = [task.document(name) for name, score in judged.items() if score > 0]
            positives[query_id] = [text.strip()[:80] for text in texts]
        self.known = {
            text.strip(): (answer, positives[query_id])
            for (query_id, text), answer in zip(
                task.queries.items(), task.queries.answers.to_pylist(), strict=True
            )
        }

    def __call__(self, body: dict[str, Any]) -> str:
        prompt = body["messages"][-1]["content"]
        if "Candidate answer:" in prompt:
            return grade(prompt)
        question = re.search(r"Question:\n(.*?)\n\n(?:Passages|Answer from)", prompt, re.DOTALL)
        assert question is not None
        answer, positives = self.known[question[1].strip()]
        for number, passage in enumerate(re.split(r"\n\[\d+\] ", prompt)[1:], start=1):
            if any(passage.startswith(text) for text in positives):
                return f"Answer: {answer}\nBecause: passage says so [{number}]."
        if "Passages:" in prompt:
            return "Answer: insufficient evidence"
        return "Answer: Influenza\nBecause: it is common."


@pytest.fixture
def server() -> Iterator[LLMServer]:
    assert run("eval", *SYSTEMS, *TASK).code == 0
    with running_llm_server() as running:
        running.reply = Reader()
        yield running


def answer(server: LLMServer, *more: str) -> Outcome:
    options = ("--llm", "scripted", "--k", "3", "--llm-url", server.url)
    return run("answer", *SYSTEMS, *TASK, *options, *more)


def test_answering_and_everything_after_it(server: LLMServer) -> None:
    estimated = answer(server, "--estimate")
    assert estimated.code == 0 and not server.seen
    assert re.search(r"scripted: \d+ calls, 0 answers cached", estimated.err)

    asked = answer(server, "--judge", "judge")
    assert asked.code == 0, asked.err
    assert "closed-book" in asked.out and "of the way from" in asked.out
    again = answer(server, "--json")
    assert f"0 answers added, {ANSWERS} stored" in again.err
    report = json.loads(again.out)
    rows = {(r["condition"], r["system"]): r for r in report["tasks"][0]["conditions"]}
    assert rows["closed-book", ""]["score"] == 0.0
    assert rows["distracted", "bm25"]["abstained"] == 1.0
    assert 0 < rows["retrieved", "bm25"]["score"] <= rows["oracle", ""]["score"]
    assert report["judge"] == "judge" and len(report["comparisons"]) == 6

    shown = run("answer", "report", NAME, *TASK)
    for expected in ("Paired tests", "p (Holm)", "Spearman's rho", "predicts answers best"):
        assert expected in shown.out
    assert run("answer", "report", NAME, *TASK, "--format", "csv").out.startswith("set,llm,task")
    assert run("answer", "report", NAME, *TASK, "--out", "report.html").code == 0
    assert "<table>" in Path("report.html").read_text()
    assert NAME in run("answer", "list").out
    assert "distracted: bm25" in run("answer", "leaderboard").out
    assert "retrieved bm25" in run("answer", "show", NAME, *TASK, "1").out
    assert run("answer", "export", NAME, *TASK, "--out", "answers.jsonl").code == 0
    assert len(Path("answers.jsonl").read_text().splitlines()) == ANSWERS
    # Answers are no results: neither the list nor the leaderboard of results changes.
    assert len(json.loads(run("results", "list", "--json").out)) == len(SYSTEMS)

    labels = ("answer", "label", NAME, *TASK, "--reviewer", "Ann")
    assert run(*labels, "--size", "5", "--out", "queue.csv").code == 0
    queue = Path("queue.csv").read_text(encoding="utf-8-sig")
    assert "closed-book" not in queue and "medqa-diag" not in queue
    Path("labelled.csv").write_text(_fill_labels(queue))
    assert run(*labels, "--from", "labelled.csv").code == 0
    assert "against labels of people: 5 answers" in run("answer", "report", NAME, *TASK).out

    assert run("answer", "delete", NAME, *TASK, "--yes").code == 0
    assert "No answer sets" in run("answer", "list").out


def _fill_labels(table: str) -> str:
    rows = list(csv.DictReader(io.StringIO(table, newline="")))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows({**row, "label": "3"} for row in rows)
    return text.getvalue()


def test_a_killed_run_resumes_without_asking_twice(server: LLMServer) -> None:
    server.script += [slow(0.05)] * ANSWERS
    options = ("--llm", "scripted", "--k", "3", "--llm-url", server.url, "--concurrency", "2")
    process = start("answer", *SYSTEMS, *TASK, *options)
    while len(server.seen) < 20:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    asked = len(server.seen)
    assert asked < 100
    server.script.clear()

    resumed = answer(server, "--json")

    assert resumed.code == 0, resumed.err
    prompts = [json.dumps(body["messages"]) for body in server.bodies]
    assert len(prompts) - len(set(prompts)) <= 2  # those in flight when it was killed
    assert sum(r["answers"] for r in json.loads(resumed.out)["tasks"][0]["conditions"]) == ANSWERS


def test_the_figure_shows_systems_between_floor_and_ceiling(server: LLMServer) -> None:
    pytest.importorskip("vl_convert")
    answer(server)

    done = run("answer", "plot", NAME, *TASK, "--measure", "recall@3", "--out", "answers.svg")
    wrong = run("answer", "plot", NAME, *TASK, "--measure", "map@10", "--out", "x.svg")

    assert done.code == 0, done.err
    texts = re.findall(r">([^<>]+)</(?:text|tspan)>", Path("answers.svg").read_text())
    for expected in ("closed-book (floor) 0", "recall@3 × 100 of the query", *SYSTEMS):
        assert expected in texts
    assert any(text.startswith("oracle (ceiling) ") for text in texts)
    paper = run("answer", "plot", NAME, *TASK, "--paper", "--out", "paper.svg")
    assert "Caption: Answers of scripted against retrieval" in paper.out
    assert "Answers of scripted" not in Path("paper.svg").read_text()
    assert wrong.code == 2 and "--measure 'map@10' was not stored" in wrong.err


def test_a_task_that_cannot_be_scored_yet_does_not_hide_the_others(
    server: LLMServer, tmp_path: Path
) -> None:
    folder = tmp_path / "essays"
    folder.mkdir()
    query = {"id": "1", "text": "why do ducks float", "answer": "because " * 11}
    (folder / "corpus.jsonl").write_text('{"id": "a", "text": "ducks"}\n{"id": "b", "text": "c"}\n')
    (folder / "query.jsonl").write_text(json.dumps(query))
    (folder / "qrels.jsonl").write_text('{"q_id": "1", "p_id": "a", "score": 1}\n')
    assert run("eval", *SYSTEMS, "--task", str(folder)).code == 0
    reader = server.reply
    server.reply = lambda body: "Answer: oil" if "ducks float" in str(body) else reader(body)
    options = ("--llm", "scripted", "--k", "3", "--llm-url", server.url)

    asked = run("answer", *SYSTEMS, "--task", "essays,demo/medqa-diag", *options)

    assert asked.code == 0, asked.err
    assert "scripted-k3 on essays: no answer can be scored" in " ".join(asked.err.split())
    assert f"demo/medqa-diag: {QUERIES} queries" in asked.out


def test_bad_input_is_explained(server: LLMServer) -> None:
    assert "is not known" in answer(server, "--conditions", "closed").err
    assert "no answer set 'nothing'" in run("answer", "report", "nothing", *TASK).err
    assert "samples at temperature 0" in answer(server, "--samples", "2").err
    assert "has no effect without --answer-llm" in run("estimate", "bm25", *TASK, "--k", "3").err
    estimated = run("estimate", "bm25", *TASK, "--answer-llm", "gpt4", "--json")
    rows = [row for row in json.loads(estimated.out) if row["work"] == "answer"]
    assert [row["texts"] for row in rows] == [2 * QUERIES] * 2 and all(row["money"] for row in rows)


def test_explorer_pages(server: LLMServer) -> None:
    client = TestClient(create_app(Library("r2med-results")), base_url="http://127.0.0.1")
    assert "r2med answer bm25" in client.get("/answers").text
    answer(server)

    board = client.get("/answers").text
    assert "oracle (ceiling)" in board and "They are not retrieval scores" in board
    address = {"task": "demo/medqa-diag", "set": NAME}
    one = client.get("/answers", params=address).text
    assert "share of the way" in one and "predicts answers best" in one
    page = client.get("/answers", params={**address, "query": "1", "system": "bm25"}).text
    for condition in ("closed-book", "retrieved", "oracle", "distracted"):
        assert f'aria-label="{condition}"' in page
    assert 'class="cite" href="#oracle-' in page and ">cited</span>" in page
    assert "<script>" not in page and "style=" not in page
    for wrong in ({"query": "none"}, {"query": "1", "system": "x"}):
        assert client.get("/answers", params={**address, **wrong}).status_code == 404
    assert client.get("/answers", params={"task": "x", "set": "y"}).status_code == 404
