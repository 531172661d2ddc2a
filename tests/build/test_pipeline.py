"""The whole pipeline, from exam items to a frozen benchmark that systems are evaluated on."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import r2med
from r2med.build.check import check_build
from r2med.build.folder import BuildFolder, read_rows
from r2med.build.freeze import freeze_build
from r2med.build.funnel import make_funnel
from r2med.build.items import build_items
from r2med.build.judge import judge_candidates, prepare_judging
from r2med.build.pool import build_pool
from r2med.errors import DataError
from r2med.tasks.own_data import check
from tests.build.making import CASES, make_folder, reply, resources_of, write_corpus
from tests.llm_server import LLMServer, running_llm_server


@pytest.fixture(scope="module")
def server() -> Iterator[LLMServer]:
    with running_llm_server() as running:
        running.reply = reply
        yield running


def run_stages(folder: BuildFolder, server: LLMServer) -> None:
    with resources_of(server) as resources:
        build_items(folder, resources)
        write_corpus(folder)
        build_pool(folder, resources)
        judge_candidates(folder, prepare_judging(folder, resources), resources)
        freeze_build(folder, resources)


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory, server: LLMServer) -> BuildFolder:
    folder = make_folder(tmp_path_factory.mktemp("build") / "tiny")
    run_stages(folder, server)
    return folder


def hash_folder(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_frozen_task_is_one_that_tasks_check_accepts(frozen: BuildFolder) -> None:
    problems, task = check(frozen.frozen_folder / "tiny")

    assert problems == []
    assert task is not None
    assert len(task.queries) == len(CASES)


def test_three_systems_evaluate_the_frozen_task(frozen: BuildFolder, tmp_path: Path) -> None:
    systems = ["bm25", "bm25-nano", "wordllama"]
    results = r2med.evaluate_all(systems, frozen.frozen_folder / "tiny", results=tmp_path)

    assert all(0 < result.metrics["ndcg@10"] <= 1 for result in results)


def test_positives_are_the_passages_that_the_judge_found_to_support_both(
    frozen: BuildFolder,
) -> None:
    rows = [row for _, row in read_rows(frozen.frozen_folder / "tiny" / "qrels.jsonl")]
    positives = {(row["q_id"], row["p_id"]) for row in rows if row["score"] > 0}
    negatives = {row["p_id"].partition("#")[0] for row in rows if row["score"] == 0}

    assert positives == {(str(i), f"book-{i}#{part}") for i in range(len(CASES)) for part in (1, 2)}
    assert negatives == {"filler"}


def test_gold_passages_contain_the_answer_and_undecided_ones_are_apart(frozen: BuildFolder) -> None:
    judgements = frozen.frozen_folder / "tiny" / "judgements"
    gold = {(row["q_id"], row["p_id"]) for _, row in read_rows(judgements / "gold.jsonl")}
    undecided = [row for _, row in read_rows(judgements / "undecided.jsonl")]

    assert gold == {(str(i), f"book-{i}#1") for i in range(len(CASES))}
    assert undecided
    assert all(row["p_id"].startswith("book") for row in undecided)


def test_two_freezes_have_the_same_bytes(frozen: BuildFolder, server: LLMServer) -> None:
    before = hash_folder(frozen.frozen_folder)
    with resources_of(server) as resources:
        freeze_build(frozen, resources)

    assert hash_folder(frozen.frozen_folder) == before


def test_the_same_sources_in_another_folder_give_the_same_bytes(
    frozen: BuildFolder, server: LLMServer, tmp_path: Path
) -> None:
    other = make_folder(tmp_path / "elsewhere")
    run_stages(other, server)

    assert hash_folder(other.frozen_folder) == hash_folder(frozen.frozen_folder)


def test_the_manifest_has_the_hash_of_every_other_file(frozen: BuildFolder) -> None:
    manifest = json.loads((frozen.frozen_folder / "manifest.json").read_text("utf-8"))
    hashes = hash_folder(frozen.frozen_folder)
    del hashes["manifest.json"]

    assert manifest["files"] == hashes
    assert [record["stage"] for record in manifest["stages"]][:2] == ["items", "corpus"]


def test_reasoning_that_a_model_wrote_is_marked(frozen: BuildFolder) -> None:
    rows = [row for _, row in read_rows(frozen.frozen_folder / "tiny" / "query.jsonl")]

    assert {row["reasoning_by"] for row in rows} == {"model writer"}


def test_the_judge_never_sees_an_id(frozen: BuildFolder, server: LLMServer) -> None:
    asked = [body for body in server.bodies if "Give two scores" in str(body["messages"])]

    assert asked
    assert not any("book-" in str(body["messages"]) for body in asked)


def test_the_funnel_counts_from_items_to_queries(frozen: BuildFolder) -> None:
    funnel = make_funnel("tiny", frozen.records())
    remaining = {step.step: step.remaining for step in funnel.steps}

    assert remaining["items read"] == len(CASES)
    assert remaining["queries in the benchmark"] == len(CASES)
    assert remaining["positives"] == 2 * len(CASES)
    assert funnel.missing == ()
    assert "queries in the benchmark" in str(funnel)


def test_the_parquet_copy_is_the_same_task(frozen: BuildFolder) -> None:
    task = r2med.load_task(frozen.frozen_folder / "tiny")
    hub = r2med.load_task(frozen.frozen_folder / "hub")

    assert hub.hash == task.hash


def test_the_card_says_that_nobody_reviewed(frozen: BuildFolder) -> None:
    card = (frozen.frozen_folder / "README.md").read_text("utf-8")

    assert "No person has reviewed the judgements." in card
    assert "| queries | 12 (12 in test) |" in card


def test_the_check_gives_every_verdict_a_threshold_and_advice(
    frozen: BuildFolder, server: LLMServer
) -> None:
    with resources_of(server) as resources:
        outcome = check_build(frozen, resources)
    by_name = {(verdict.check, verdict.subject): verdict for verdict in outcome.verdicts}

    assert all(verdict.threshold and verdict.advice for verdict in outcome.verdicts)
    assert by_name["answers in queries", ""].passed is True
    assert by_name["agreement of reviewers", ""].passed is False
    assert ("leave out view: tau", "reasoning") in by_name
    assert ("leave out system: rank", "wordllama") in by_name
    assert "agreement of reviewers" in str(outcome)


def test_a_changed_frozen_file_is_named(
    frozen: BuildFolder, server: LLMServer, tmp_path: Path
) -> None:
    copy = BuildFolder(Path(shutil.copytree(frozen.path, tmp_path / "copy")))
    with (copy.frozen_folder / "tiny" / "qrels.jsonl").open("a") as file:
        file.write("\n")

    with resources_of(server) as resources, pytest.raises(DataError, match=r"qrels\.jsonl differs"):
        check_build(copy, resources)
