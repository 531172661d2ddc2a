"""Judging a pool: union of systems, duplicates, calibration, resuming, and judges that fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from r2med.errors import DataError, MissingError, UsageError
from r2med.judge.judging import default_rubric, judge_pool, open_set
from r2med.judge.panel import Item, Panel, combine_votes, open_panel
from r2med.judge.pool import pool_runs, sample_calibration
from r2med.judge.store import JudgementSet, JudgementStore
from r2med.tasks.task import Task
from tests.judge.making import (
    GRADED,
    JUDGE,
    grade_by_words,
    make_run,
    make_task,
    panel_of,
    remote_of,
)
from tests.llm_server import REFUSING, LLMServer, fails, running_llm_server, says, slow


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with running_llm_server() as running:
        running.reply = grade_by_words
        yield running


TASK = make_task(
    {
        "secret-q1-1": "aspirin helps",
        "secret-q1-2": "aspirin harms",
        "secret-q1-3": "about ducks",
        "secret-q1-4": "aspirin harms",
        "secret-q1-5": "about ducks",
        "secret-q2-1": "insulin",
    },
    {"q1": "what about aspirin", "q2": "what about insulin"},
    {"q1": {"secret-q1-1": 1, "secret-q1-3": 0}, "q2": {"secret-q2-1": 1}},
)
RUNS = {
    "a": make_run({"q1": ["secret-q1-1", "secret-q1-2"], "q2": ["secret-q1-1"]}),
    "b": make_run({"q1": ["secret-q1-4", "secret-q1-5", "secret-q2-1"], "q2": ["secret-q2-1"]}),
}


def judge(
    panel: Panel, tmp_path: Path, task: Task = TASK, *, name: str | None = None
) -> JudgementSet:
    pool = pool_runs(task, RUNS, depth=10)
    judged = open_set(task, panel, tmp_path, name=name, depth=10, warn=pytest.fail)
    judge_pool(task, pool, sample_calibration(task), panel, judged)
    return judged


def test_the_pool_is_the_union_of_the_systems_without_judged_pairs() -> None:
    pool = pool_runs(TASK, RUNS, depth=10)

    assert set(pool.systems) == {
        ("q1", "secret-q1-2"),
        ("q1", "secret-q1-4"),
        ("q1", "secret-q1-5"),
        ("q1", "secret-q2-1"),
        ("q2", "secret-q1-1"),
    }
    assert pool.judged == 2 and pool.size == 7
    assert pool.systems["q1", "secret-q1-4"] == ("b",)
    assert set(pool_runs(TASK, RUNS, depth=1).systems) == {
        ("q1", "secret-q1-4"),
        ("q2", "secret-q1-1"),
    }


def test_equal_texts_are_asked_once_and_take_the_benchmarks_judgement_where_it_has_one() -> None:
    pool = pool_runs(TASK, RUNS, depth=10)

    assert pool.copies == {("q1", "secret-q1-4"): ("q1", "secret-q1-2")}
    assert pool.judged_copies == {("q1", "secret-q1-5"): ("q1", "secret-q1-3")}
    assert len(pool.ask) == 3


def test_the_calibration_sample_has_both_kinds_and_is_stable() -> None:
    assert sorted(sample_calibration(TASK)) == [
        ("q1", "secret-q1-1"),
        ("q1", "secret-q1-3"),
        ("q2", "secret-q2-1"),
    ]
    assert set(sample_calibration(TASK, 2)) < set(sample_calibration(TASK))
    assert len({pair[1] == "secret-q1-3" for pair in sample_calibration(TASK, 2)}) == 2


def test_a_judge_sees_texts_and_never_ids(server: LLMServer, tmp_path: Path) -> None:
    judge(panel_of(server), tmp_path)

    prompts = json.dumps(server.bodies)
    assert "aspirin" in prompts and "secret" not in prompts and '"q1"' not in prompts
    assert {body["temperature"] for body in server.bodies} == {0}


def test_judgements_are_stored_with_everything_that_explains_them(
    server: LLMServer, tmp_path: Path
) -> None:
    judged = judge(panel_of(server), tmp_path)

    again = JudgementStore(tmp_path, warn=pytest.fail).find(judged.name, TASK)
    stored = again.judgements()
    assert judged.name == "scripted-graded" and again.description == judged.description
    assert again.rubric == GRADED and again.description.models == [JUDGE]
    assert {pair: judgement.grade for pair, judgement in stored.items()} == {
        ("q1", "secret-q1-1"): 3,
        ("q1", "secret-q1-3"): 0,
        ("q2", "secret-q2-1"): 3,
        ("q1", "secret-q1-2"): 3,
        ("q1", "secret-q1-4"): 3,
        ("q1", "secret-q2-1"): 0,
        ("q2", "secret-q1-1"): 0,
    }
    asked, copy = stored["q1", "secret-q1-2"], stored["q1", "secret-q1-4"]
    assert asked.systems == ("a",) and asked.rationale == "x" and asked.purpose == "pool"
    assert asked.scores == {"match": 3, "trustworthiness": 2, "overall": 3}
    assert asked.prompt_hash and asked.date and asked.votes[0].model == JUDGE
    assert copy.duplicate_of == "secret-q1-2" and copy.systems == ("b",)
    assert stored["q1", "secret-q1-1"].purpose == "calibration"


def test_judging_again_asks_nothing_and_adds_nothing(server: LLMServer, tmp_path: Path) -> None:
    panel = panel_of(server)
    judged = judge(panel, tmp_path)
    before, asked = judged.judgements(), len(server.seen)
    judged.close()

    again = judge(panel_of(server), tmp_path)

    assert again.judgements() == before and len(server.seen) == asked


def test_other_settings_under_the_same_name_are_refused(server: LLMServer, tmp_path: Path) -> None:
    judge(panel_of(server), tmp_path, name="mine")

    with pytest.raises(UsageError, match="has another judge"):
        judge(panel_of(server, "other"), tmp_path, name="mine")
    with pytest.raises(UsageError, match="is not benchmark, all, review"):
        judge(panel_of(server), tmp_path, name="all")
    with pytest.raises(UsageError, match="a name has letters"):
        judge(panel_of(server), tmp_path, name="../escape")


def test_a_malformed_answer_is_asked_for_once_more(server: LLMServer, tmp_path: Path) -> None:
    server.script.append(says("I think it is rather good."))

    judged = judge(panel_of(server), tmp_path)

    assert len(judged.grades()) == 7
    follow_up = [body for body in server.bodies if len(body["messages"]) == 4]
    assert len(follow_up) == 1
    assert follow_up[0]["messages"][-1]["content"] == GRADED.retry


@pytest.mark.parametrize("step", [says("Nonsense."), REFUSING, says("")])
def test_a_judge_that_cannot_be_read_is_stopped_and_its_judgements_are_kept(
    server: LLMServer, tmp_path: Path, step: Any
) -> None:
    server.reply = lambda body: "Nonsense."
    server.script += [says('{"overall": 2}'), *([step] * 20)]

    with pytest.raises(DataError, match="cannot be read"):
        judge(panel_of(server), tmp_path)
    [stored] = JudgementStore(tmp_path, warn=pytest.fail).sets(TASK)
    assert list(stored.grades().values()) == [2]


def test_a_judge_that_is_broken_is_stopped_early(server: LLMServer, tmp_path: Path) -> None:
    documents = {f"d{number}": f"text {number}" for number in range(200)}
    task = make_task(documents, {"q1": "what"}, {})
    pool = pool_runs(task, {"a": make_run({"q1": list(documents)})}, depth=200)
    server.reply = lambda body: "Nonsense."
    panel = panel_of(server)
    judged = open_set(task, panel, tmp_path, name=None, depth=200, warn=pytest.fail)

    with pytest.raises(DataError, match="64 answers"):
        judge_pool(task, pool, [], panel, judged)
    assert len(server.seen) == 128


def test_a_server_that_fails_or_times_out_loses_no_answer(
    server: LLMServer, tmp_path: Path
) -> None:
    server.script += [says('{"overall": 2}'), fails(500), fails(500)]
    panel = open_panel([JUDGE], GRADED, remote_of(server, attempts=1, concurrency=1))
    with pytest.raises(MissingError, match="of 6 requests"):
        judge(panel, tmp_path)
    asked = len(server.seen)
    panel = open_panel([JUDGE], GRADED, remote_of(server, attempts=1, timeout=0.2, concurrency=1))
    server.script.append(slow(1.0))
    with pytest.raises(MissingError):
        judge(panel, tmp_path)

    judged = judge(panel_of(server), tmp_path)

    assert len(judged.grades()) == 7
    assert sorted(judged.grades().values())[3] in (2, 3)
    assert len(server.seen) > asked


def test_several_judges_vote(server: LLMServer, tmp_path: Path) -> None:
    server.reply = lambda body: json.dumps({"overall": {"x": 3, "y": 1, "z": 1}[body["model"]]})

    majority = judge(panel_of(server, "x", "y", "z"), tmp_path, name="majority")
    mean = judge(panel_of(server, "x", "y", "z", combine="mean"), tmp_path, name="mean")

    assert set(majority.grades().values()) == {1} and set(mean.grades().values()) == {2}
    votes = majority.judgements()["q1", "secret-q1-2"].votes
    assert [(vote.model, vote.scores) for vote in votes] == [
        ("x", {"overall": 3}),
        ("y", {"overall": 1}),
        ("z", {"overall": 1}),
    ]


def test_ties_and_halves_take_the_lower_score() -> None:
    votes = [{"overall": 3}, {"overall": 1}, {"overall": 3}, {"overall": 1}]

    assert combine_votes(votes, GRADED, "majority") == {"overall": 1}
    assert combine_votes([{"overall": 1}, {"overall": 2}], GRADED, "mean") == {"overall": 1}
    assert combine_votes([], GRADED, "mean") == {}


def test_several_samples_need_a_temperature(server: LLMServer) -> None:
    with pytest.raises(UsageError, match=r"temperature=0\.7"):
        panel_of(server, samples=3)

    panel = panel_of(server, f"{JUDGE}[temperature=0.7]", samples=3)
    [judgement] = panel.ask([Item("q", "d", {"query": "what aspirin", "passage": "aspirin"})])

    assert len(judgement.votes) == 3
    assert len({body["seed"] for body in server.bodies}) == 3


def test_an_estimate_asks_nothing(server: LLMServer) -> None:
    panel = panel_of(server)
    item = Item("q", "d", {"query": "what aspirin", "passage": "aspirin"})

    [(name, estimate)] = panel.estimate([item])

    assert name == JUDGE and estimate.calls == 1 and not server.seen
    panel.ask([item])
    assert panel.estimate([item])[0][1].cached == 1


def test_tasks_with_answers_are_judged_by_reasoning() -> None:
    assert default_rubric(TASK).name == "graded"


def test_a_damaged_line_is_reported_and_left_out(server: LLMServer, tmp_path: Path) -> None:
    judged = judge(panel_of(server), tmp_path)
    before = judged.grades()
    [path] = judged.folder.glob("*.judged")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"grade": ', b'"grade": 1', 1)
    path.write_bytes(b"".join(lines) + b"0000 unfinished")
    warnings: list[str] = []

    [again] = JudgementStore(tmp_path, warn=warnings.append).sets(TASK)

    assert len(again.grades()) == len(before) - 1
    assert len(warnings) == 1 and "fails its checksum" in warnings[0]


def test_a_deleted_set_is_gone(server: LLMServer, tmp_path: Path) -> None:
    judged = judge(panel_of(server), tmp_path)
    store = JudgementStore(tmp_path, warn=pytest.fail)

    store.delete(judged)

    assert store.sets() == [] and not judged.folder.exists()
    with pytest.raises(MissingError, match="The task has none"):
        store.find(judged.name, TASK)
