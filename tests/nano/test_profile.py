from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from r2med.nano.candidates import CandidateList, combine_candidates
from r2med.nano.folder import write_candidates
from r2med.nano.profiles import (
    check_profile,
    data_profile,
    group_means,
    profile,
    published_profile,
)
from r2med.report.formats import Page
from r2med.report.profiles import retrieval_parts
from r2med.runs import Run
from r2med.tasks.load import load_task
from r2med.tasks.registry import find_suite
from tests.cli.running import run
from tests.nano.making import task_of
from tests.tasks.writing import Written, write_nano

DOCUMENTS = [(f"d{i}", f"text {i}") for i in range(5)]
TASK = task_of(
    DOCUMENTS, {"q1": "one", "q2": "two words"}, {"q1": {"d0": 2, "d1": 1}, "q2": {"d2": 1}}
)


def bm25(**ranked: str) -> list[CandidateList]:
    """The bm25 subset, each list as the digits of its documents."""
    lists = {q: [(f"d{c}", 0.0) for c in names] for q, names in ranked.items()}
    return [CandidateList("bm25", Run.from_lists(lists), "bm25")]


def test_figures_are_binary_in_list_order_and_recall_is_micro_and_macro() -> None:
    found = profile(TASK, bm25(q1="10", q2="34"))

    [row] = found.retrieval
    assert row.figures == {
        "ndcg@10": pytest.approx(0.5),
        "hit@10": 0.5,
        "micro_recall@100": pytest.approx(2 / 3),
        "macro_recall@100": 0.5,
        "candidates_min": 2,
        "candidates_mean": 2.0,
        "candidates_max": 2,
    }


def test_the_data_profile_counts_positives_and_characters() -> None:
    data = data_profile(TASK)

    positives = data["positives_per_query"]
    assert (positives["min"], positives["median"], positives["max"]) == (1, 1.5, 2)
    assert positives["multi_positive_query_percent"] == 50
    assert (data["query_length"]["mean"], data["document_length"]["max"]) == (6.0, 6)


def test_candidates_on_disk_give_the_same_profile_as_in_memory(tmp_path: Path) -> None:
    write_nano(tmp_path, Written(), split="NanoTask")
    task = load_task(f"{tmp_path}#NanoTask")
    ranked = Run.from_lists({"1": [("d3", 2.0), ("d2", 1.0)], "2": [("d1", 2.0), ("d2", 1.0)]})
    found = combine_candidates(
        ranked, ranked, task.judgements, split="NanoTask", dense=("enc", "enc")
    )
    for subset in found:
        write_candidates(subset.run, tmp_path, subset.config, "NanoTask")

    in_memory = profile(task, [replace(one, system=None) for one in found])
    assert profile(task) == in_memory


def test_the_published_group_means_are_the_published_ones() -> None:
    published = [published_profile(entry).published for entry in find_suite("nano").entries]

    means = {
        mean.role: (round(mean.weighted["ndcg@10"], 4), round(mean.task_mean["ndcg@10"], 4))
        for mean in group_means(published)
    }
    assert means == {
        "bm25": (0.2110, 0.2094),
        "dense": (0.2980, 0.3007),
        "reranking_hybrid": (0.2899, 0.2882),
    }


def test_group_means_weigh_by_query_and_by_task_and_need_every_task() -> None:
    small = task_of(DOCUMENTS, {"q": "x"}, {"q": {"d0": 1}})
    both = [
        profile(TASK, bm25(q1="10", q2="34")).retrieval,
        profile(small, bm25(q="0")).retrieval,
    ]

    [mean] = group_means(both)

    assert mean.weighted["ndcg@10"] == pytest.approx((0.5 * 2 + 1) / 3)
    assert mean.task_mean["ndcg@10"] == pytest.approx(0.75)
    assert mean.weighted["micro_recall@100"] == pytest.approx(3 / 4)
    assert group_means([both[0], profile(small, []).retrieval]) == []


def test_figures_that_differ_from_the_manifest_are_found() -> None:
    entry = find_suite("nano").entries[0]
    row = profile(TASK, bm25(q1="10", q2="34"))

    checks = {check.fact: check.passed for check in check_profile(row, entry)}

    assert checks["bm25.ndcg@10"] is False
    assert checks["dense.ndcg@10"] is None


def test_published_figures_are_shown_where_the_data_is_not_here() -> None:
    outcome = run("tasks", "profile", "nano")

    assert outcome.code == 0
    assert "as published" in outcome.out
    assert outcome.out.count("NanoR2MED") >= 8
    assert "21.10" in outcome.out and "20.94" in outcome.out
    assert max(len(line.rstrip()) for line in outcome.out.splitlines()) <= 80


def test_the_profile_of_a_group_labels_both_means_and_fits_eighty_columns() -> None:
    outcome = run("tasks", "profile", "demo", "--dense", "none")

    assert outcome.code == 0
    assert "query-weighted mean" in outcome.out and "mean of 8 tasks" in outcome.out
    assert max(len(line.rstrip()) for line in outcome.out.splitlines()) <= 80


def test_the_profile_as_json_is_nothing_but_json() -> None:
    told = json.loads(run("tasks", "profile", "demo/biology", "--dense", "none", "--json").out)

    assert told["tasks"][0]["data"]["queries"] == len(load_task("demo/biology").queries)
    assert told["tasks"][0]["retrieval"][0]["role"] == "bm25"


def test_published_figures_stand_beside_the_measured() -> None:
    entry = find_suite("nano").entries[0]
    measured = profile(TASK, bm25(q1="10", q2="34"))
    page = Page()

    page.print(*retrieval_parts(replace(measured, published=published_profile(entry).published)))

    heads = "| figure | BM25 | BM25, published | Dense, published | Hybrid, published |"
    assert heads in page.to_markdown()
