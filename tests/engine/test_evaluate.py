"""Evaluating: what is stored is reused, what changed is run again, what is damaged is redone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import r2med
from r2med.errors import MissingError, UsageError

TASK = "demo/medqa-diag"


def copied(task: str, folder: Path) -> Path:
    """A folder of one's own with the files of a demo task."""
    from r2med.tasks.location import data_folder
    from r2med.tasks.registry import find_task

    folder.mkdir()
    for file in data_folder(find_task(task)).glob("*.jsonl"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_a_result_holds_metrics_scores_and_run() -> None:
    result = r2med.evaluate("bm25", r2med.load_task(TASK))

    assert 0 < result.metrics["ndcg@10"] < 1
    assert len(result.scores) == 13
    assert result.scores["ndcg@10"].mean() == pytest.approx(result.metrics["ndcg@10"])
    assert len(result.run) == 13
    assert result.seconds["search"] > 0


def test_lists_give_lists_task_by_task() -> None:
    results = r2med.evaluate(["bm25", "bm25-nano"], [TASK, "demo/biology"])

    assert [(result.task, result.system) for result in results] == [
        (TASK, "bm25"),
        (TASK, "bm25-nano"),
        ("demo/biology", "bm25"),
        ("demo/biology", "bm25-nano"),
    ]


def test_a_finished_result_is_reused_until_forced() -> None:
    first = r2med.evaluate("bm25", TASK)
    again = r2med.evaluate("bm25", TASK)
    forced = r2med.evaluate("bm25", TASK, force=True)

    assert (first.reused, again.reused, forced.reused) == (False, True, False)
    assert again.metrics == first.metrics == forced.metrics


def test_the_same_system_written_otherwise_is_the_same_result() -> None:
    first = r2med.evaluate("bm25[k1=1.2,b=0.5]", TASK)

    assert r2med.evaluate("( bm25[ b=0.5, k1=1.2 ] )", TASK).folder == first.folder


def test_a_changed_option_or_changed_data_is_another_result(tmp_path: Path) -> None:
    folder = copied(TASK, tmp_path / "mine")
    first = r2med.evaluate("bm25", folder)
    option = r2med.evaluate("bm25[k1=1.2]", folder)
    judgements = folder / "qrels.jsonl"
    judgements.write_text("\n".join(judgements.read_text().splitlines()[1:]))

    changed = r2med.evaluate("bm25", folder)

    assert len({first.folder, option.folder, changed.folder}) == 3
    assert not changed.reused


@pytest.mark.parametrize("name", ["result.json", "run.parquet", "scores.parquet"])
def test_a_damaged_result_is_named_and_redone(name: str) -> None:
    first = r2med.evaluate("bm25", TASK)
    (first.folder / name).write_bytes(b"damaged")
    told: list[str] = []

    again = r2med.evaluate("bm25", TASK, tell=told.append)

    assert not again.reused
    assert again.metrics == first.metrics
    assert any(name in message for message in told)


def test_a_new_cutoff_is_measured_from_the_stored_run() -> None:
    r2med.evaluate("bm25", TASK)

    wider = r2med.evaluate("bm25", TASK, metrics=["ndcg@20"])

    assert wider.metrics["ndcg@20"] == pytest.approx(wider.scores["ndcg@20"].mean())
    assert r2med.evaluate("bm25", TASK, metrics=["ndcg@20"]).reused


def test_the_record_says_what_ran() -> None:
    result = r2med.evaluate("bm25", TASK)

    record = json.loads((result.folder / "result.json").read_text())

    assert record["schema"] == 2
    assert record["task"]["hash"] == r2med.load_task(TASK).hash
    assert record["system"]["published_as"] == "bm25"
    assert record["system"]["ties"] == "trec"
    assert record["versions"]["r2med"]


def test_fusing_is_indifferent_to_the_order_of_its_members() -> None:
    one = r2med.evaluate("bm25 + bm25-nano", TASK)
    other = r2med.evaluate("bm25-nano + bm25", TASK)

    assert one.metrics == other.metrics


def test_unknown_systems_options_and_tasks_are_refused_with_what_is_near() -> None:
    with pytest.raises(UsageError, match="'bm25'"):
        r2med.evaluate("bm52", TASK)
    with pytest.raises(UsageError, match=r"no option 'k'.*'k1'"):
        r2med.evaluate("bm25[k=1]", TASK)
    with pytest.raises(UsageError, match="medqa-diag"):
        r2med.evaluate("bm25", "demo/medqadiagg")
    with pytest.raises(MissingError, match="r2med fetch"):
        r2med.evaluate("bm25", "MedQA-Diag")


def test_data_the_user_has_is_taken_as_the_registered_task(tmp_path: Path) -> None:
    copied(TASK, tmp_path / "MedQA-Diag")
    told: list[str] = []

    result = r2med.evaluate("bm25", "MedQA-Diag", root=tmp_path, tell=told.append)

    assert (result.task, result.suite) == ("MedQA-Diag", "full")
    assert any("manifest" in message for message in told)


def test_conditions_reach_systems_given_as_text(tmp_path: Path) -> None:
    (tmp_path / "run.trec").write_text("nobody Q0 nothing 1 1.0 x\n", encoding="utf-8")
    spec = f"run:{tmp_path / 'run.trec'}"
    heard: list[str] = []

    with pytest.raises(r2med.R2MedError, match="nobody"):
        r2med.evaluate(spec, TASK, conditions=r2med.Conditions(strict=True))
    r2med.evaluate(spec, TASK, conditions=r2med.Conditions(tell=heard.append))

    assert any("nobody" in message for message in heard)


@pytest.mark.parametrize("systems", [len, [len], 3, object()])
def test_a_model_in_place_of_a_system_is_told_how_to_make_it_one(systems: Any) -> None:
    with pytest.raises(UsageError, match=r"is no system: .* r2med\.System\.from_model"):
        r2med.evaluate(systems, TASK)


@pytest.mark.parametrize("tasks", [3, None, ["demo/biology", 3]])
def test_what_is_no_task_is_told_what_was_expected(tasks: Any) -> None:
    with pytest.raises(UsageError, match="is no task: expected a name"):
        r2med.evaluate("bm25", tasks)
