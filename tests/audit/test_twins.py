"""Unjudged documents with the text of a judged one are found, and may inherit its judgement."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from r2med import evaluate, load_task
from r2med.audit.twins import find_twins, inherit_judgements, score_twins
from r2med.tasks.task import Task
from tests.cli.running import run

POSITIVE = (
    "Recurrent fever with a salmon-coloured rash, sore throat and very high ferritin suggests "
    "adult-onset Still disease, which is treated with steroids or with anakinra."
)
DOCUMENTS = {
    "original": POSITIVE,
    "copy": POSITIVE.upper(),
    "revised": POSITIVE.replace("very high", "extremely high"),
    "longer": f"{POSITIVE} {'Other causes of fever are discussed in the next chapter. ' * 4}",
    "other": "A fracture of the scaphoid is easily missed on the first radiograph of the wrist.",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "fevers"
    folder.mkdir()
    rows = [{"id": name, "text": text} for name, text in DOCUMENTS.items()]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    query = {"id": "1", "text": "fever and rash with high ferritin"}
    (folder / "query.jsonl").write_text(json.dumps(query))
    (folder / "qrels.jsonl").write_text(json.dumps({"q_id": "1", "p_id": "original", "score": 2}))
    return folder


@pytest.fixture
def task(folder: Path) -> Task:
    return load_task(folder)


def test_copies_and_revisions_are_twins_but_longer_texts_are_not(task: Task) -> None:
    twins = {(twin.twin, twin.type) for twin in find_twins(task)}

    assert twins == {("copy", "exact"), ("revised", "near-duplicate")}


def test_a_twin_inherits_the_judgement_of_its_original(task: Task) -> None:
    judgements = inherit_judgements(task.judgements, find_twins(task))

    assert judgements.by_query() == {"1": {"original": 2, "copy": 2, "revised": 2}}


def test_the_best_of_several_originals_is_inherited(task: Task) -> None:
    first, *_ = find_twins(task)
    twins = [first, type(first)(**{**vars(first), "score": 3, "original": "else"})]

    judgements = inherit_judgements(task.judgements, twins)

    assert judgements.by_query()["1"][first.twin] == 3


def test_scores_with_twins_are_those_of_the_inherited_judgements(task: Task) -> None:
    result = evaluate("bm25", task)

    [score] = score_twins([result], {task.name: task}, "recall@1").scores

    assert (score.score, score.twins) == (result.metrics["recall@1"], 2)
    assert score.with_twins == pytest.approx(1 / 3)


def test_the_commands_report_twins(folder: Path) -> None:
    checked = run("tasks", "check", str(folder))
    evaluated = run("eval", "bm25", "--task", str(folder), "--twins")

    assert "2 unjudged twins" in checked.err
    assert "copy like original (query 1)" in " ".join(checked.err.split())
    assert "with twins" in evaluated.out
