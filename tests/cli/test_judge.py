"""`r2med judge`: the whole flow with a scripted judge."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import r2med
from r2med.explore.app import create_app
from r2med.explore.library import Library
from r2med.judge.pool import pool_runs, sample_calibration
from r2med.tasks.load import load_task
from tests.cli.running import run
from tests.judge.making import store_grades
from tests.llm_server import LLMServer, running_llm_server

SYSTEMS = ("bm25", "bm25-nano")
TASK = ("--task", "demo/biology")


def grade_by_answer(body: dict[str, Any]) -> str:
    """Score 3 where the passage shares enough long words with the answer."""
    prompt = body["messages"][1]["content"]
    answer = re.search(r"Reference answer:\n(.*?)\n\nReasoning", prompt, re.DOTALL)
    passage = re.search(r"Passage:\n(.*?)\n\nGive two", prompt, re.DOTALL)
    assert answer is not None and passage is not None
    words = set(re.findall(r"\w{6,}", answer[1].lower()))
    shared = len(words & set(re.findall(r"\w{6,}", passage[1].lower()))) / max(1, len(words))
    grade = 3 if shared > 0.2 else 0
    return json.dumps({"answer": grade, "reasoning": grade, "rationale": f"{shared:.2f}"})


@pytest.fixture
def server() -> Iterator[LLMServer]:
    for system in SYSTEMS:
        assert run("eval", system, *TASK).code == 0
    with running_llm_server() as running:
        running.reply = grade_by_answer
        yield running


def judge(server: LLMServer, *more: str) -> Any:
    options = ("--judge", "scripted", "--llm-url", server.url)
    return run("judge", *SYSTEMS, *TASK, *options, *more)


def test_judging_and_its_report(server: LLMServer) -> None:
    estimated = judge(server, "--estimate")
    assert estimated.code == 0 and not server.seen
    assert re.search(r"scripted: [\d,]+ calls, 0 answers cached", estimated.err)

    judged = judge(server)
    assert judged.code == 0, judged.err
    assert "biology-" not in json.dumps(server.bodies)
    assert "scripted-reasoning has" in judged.out
    again = judge(server, "--json")
    assert json.loads(again.out)[0]["asked"] == 0

    report = run("judge", "report", *SYSTEMS, *TASK, "--format", "json")
    [values] = json.loads(report.out)
    assert values["calibration"][0]["pairs"] == 100
    assert values["judgements"].startswith("benchmark + scripted-reasoning:")
    for system in values["systems"]:
        low, mean = system["holes_irrelevant"]["mean"], system["benchmark"]["mean"]
        assert low == pytest.approx(mean)
        assert system["judged_with"] > system["judged"]
        assert system["added"]["interval"]["low"] <= system["added"]["mean"]
    assert values["order"]["tau"]["value"] in (-1.0, 1.0, None)

    shown = run("judge", "report", *SYSTEMS, *TASK)
    for expected in ("judged@10", "Kendall's tau", "Calibration of", "false alarms", "kappa"):
        assert expected in shown.out
    written = run("judge", "report", *SYSTEMS, *TASK, "--out", "report.html")
    assert written.code == 0 and "<table>" in Path("report.html").read_text()


@pytest.mark.usefixtures("server")
def test_scores_with_added_judgements_are_labelled_everywhere() -> None:
    task = load_task("demo/biology")
    run_of = {name: r2med.evaluate(name, task).ranked for name in SYSTEMS}
    pool = pool_runs(task, run_of, depth=10)
    grades = {pair: 3 * (number % 2) for number, pair in enumerate(pool.ask)}
    known = dict.fromkeys(sample_calibration(task, 10), 3)
    store_grades(Path("r2med-results"), task, "mine", {**grades, **known})
    added = ("--judgements", "mine", *TASK)
    label = "benchmark + mine"

    shown = run("eval", *SYSTEMS, *added)
    assert shown.code == 0 and f"Judgements: {label}" in shown.out
    rows = json.loads(run("eval", *SYSTEMS, *added, "--json").out)
    before = json.loads(run("eval", *SYSTEMS, *TASK, "--json").out)
    assert [row["judgements"] for row in rows] == [label, label]
    assert "judgements" not in before[0]
    [report] = json.loads(run("judge", "report", *SYSTEMS, *TASK, "--json").out)
    means = [row["metrics"]["ndcg@10"] for row in rows]
    assert means == pytest.approx([system["added"]["mean"] for system in report["systems"]])
    assert means != pytest.approx([row["metrics"]["ndcg@10"] for row in before])

    compared = run("compare", *SYSTEMS, *added, "--json")
    assert json.loads(compared.out)["judgements"] == label
    assert f"Judgements: {label}" in run("compare", *SYSTEMS, *added).out
    assert label in run("compare", *SYSTEMS, *added, "--format", "csv").out
    board = json.loads(run("leaderboard", "--suite", "demo", *added, "--json").out)
    assert board["judgements"] == label and "left out" in board["notes"][0]
    assert label in run("leaderboard", "--suite", "demo", *added, "--format", "csv").out
    other_suite = run("leaderboard", "--judgements", "mine")
    assert other_suite.code == 1 and "--suite demo" in other_suite.err
    assert run("explore", "--judgements", "mine", "--bundle", "site").code == 0
    pages = [path.read_text("utf-8") for path in Path("site").rglob("*.html")]
    assert all(f"Judgements: {label}" in page for page in pages)
    library = Library("r2med-results", judgements="mine")
    client = TestClient(create_app(library), base_url="http://127.0.0.1")
    for page in ("/", "/tasks", "/task/demo/biology", "/about"):
        assert f"Judgements: {label}" in client.get(page).text, page
    assert label in client.get("/leaderboard.csv").text
    plain = TestClient(create_app(Library("r2med-results")), base_url="http://127.0.0.1")
    assert "Judgements: " not in plain.get("/").text
    assert r2med.evaluate("bm25", task).metrics["ndcg@10"] == before[0]["metrics"]["ndcg@10"]


@pytest.mark.usefixtures("server")
def test_scores_of_an_uncalibrated_judge_are_refused() -> None:
    task = load_task("demo/biology")
    pool = pool_runs(task, {"bm25": r2med.evaluate("bm25", task).ranked}, depth=10)
    store_grades(Path("r2med-results"), task, "mine", dict.fromkeys(pool.ask, 3))

    done = run("eval", "bm25", *TASK, "--judgements", "mine")

    assert done.code == 1 and "was not calibrated" in done.err
    unknown = run("compare", *SYSTEMS, *TASK, "--judgements", "other")
    assert unknown.code == 1 and "no task here has such judgements" in unknown.err


def test_sets_are_listed_shown_exported_and_deleted(server: LLMServer) -> None:
    assert "No judgement sets" in run("judge", "list").out
    judge(server, "--set", "mine", "--calibration", "10")

    [row] = json.loads(run("judge", "list", "--json").out)
    assert row["name"] == "mine" and row["calibration"] == 10 and row["judges"] == "scripted"
    shown = json.loads(run("judge", "show", "mine", *TASK, "--json").out)
    assert len(shown) == row["pairs"] + 10
    assert {"rationale", "votes", "prompt_hash", "systems", "date"} <= shown[0].keys()
    exported = run("judge", "export", "mine", *TASK, "--out", "added.txt")
    assert exported.code == 0, exported.err
    lines = Path("added.txt").read_text().splitlines()
    assert len(lines) == row["pairs"] and all(len(line.split()) == 4 for line in lines)
    assert run("judge", "delete", "mine", *TASK).code == 1
    assert run("judge", "delete", "mine", *TASK, "--yes").code == 0
    assert "No judgement sets" in run("judge", "list").out
    assert "no judgement set 'mine'" in run("judge", "show", "mine", *TASK).err


def test_one_system_alone_is_warned_of(server: LLMServer) -> None:
    done = run("judge", "bm25", *TASK, "--judge", "scripted", "--llm-url", server.url)

    assert done.code == 0 and "alone favours it" in done.err


def test_a_judge_that_cannot_be_read_ends_with_an_error(server: LLMServer) -> None:
    server.reply = lambda body: "Nonsense."

    done = judge(server)

    assert done.code == 1 and "cannot be read" in done.err
    assert json.loads(run("judge", "list", "--json").out)[0]["pairs"] == 0


def test_judging_is_estimated_before_any_result_exists() -> None:
    estimated = run("estimate", *SYSTEMS, *TASK, "--judge-llm", "gpt4", "--depth", "3", "--json")

    [row] = [row for row in json.loads(estimated.out) if row["work"] == "judge"]
    queries = len(load_task("demo/biology").queries.ids)
    assert row["texts"] == queries * 6 + 100 and row["money"] > 0
    assert "without --judge-llm" in run("estimate", "bm25", *TASK, "--depth", "3").err


def test_the_estimate_before_any_result_is_near_that_of_the_pool(server: LLMServer) -> None:
    words = ("estimate", "bm25", *TASK, "--judge-llm", "scripted", "--llm-url", server.url)
    [row] = [r for r in json.loads(run(*words, "--json").out) if r["work"] == "judge"]
    counted = judge(server, "--estimate").err

    calls, tokens = re.findall(r"scripted: ([\d,]+) calls.*about ([\d,]+) tokens", counted)[0]
    per_call = int(tokens.replace(",", "")) / int(calls.replace(",", ""))
    assert row["tokens"] / row["texts"] == pytest.approx(per_call, rel=0.1)


def test_a_judge_is_needed(server: LLMServer) -> None:
    assert run("judge", *SYSTEMS, *TASK).code == 2
    assert "judge SYSTEM" in run("judge", "--help").out
