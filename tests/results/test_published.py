"""The embedded figures are the published ones: all of them, digit for digit."""

from __future__ import annotations

from statistics import fmean

import pytest

from r2med.results.published import CONTRAST, published_systems
from r2med.systems.spec import parse
from r2med.tasks.registry import find_suite

TASKS = [entry.name for entry in find_suite("full").entries]


def mean(spec: str, metric: str = "ndcg@10") -> float:
    figures = published_systems("full")[spec].figures
    return 100 * fmean(figures[task][metric] for task in TASKS)


def test_every_published_figure_is_embedded() -> None:
    systems = published_systems("full").values()

    assert sum(len(row) for system in systems for row in system.figures.values()) == 12_876
    assert [
        sum(system.kind == kind for system in systems) for kind in ("base", "gar", "reranker")
    ] == [15, 57, 6]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("nv", 31.43),
        ("bm25", 15.13),
        ("nv | rankllama@10", 29.93),
        ("nv | monobert@10", 26.47),
        ("nv | bge-reranker@10", 25.55),
        ("nv | rankllama@100", 22.79),
        ("nv | monobert@100", 16.20),
        ("nv | bge-reranker@100", 14.08),
        ("query2doc:gpt4 | nv", 41.65),
        ("hyde:o3-mini | nv", 41.35),
        ("hyde:o3-mini | bm25", 41.01),
    ],
)
def test_the_means_are_the_headlines_of_the_paper(spec: str, expected: float) -> None:
    assert round(mean(spec), 2) == expected


def test_single_figures_keep_their_five_digits_and_their_origin() -> None:
    bge, reranked = (published_systems("full")[name] for name in ("bge", "nv | rankllama@100"))

    assert bge.figures["Bioinformatics"]["map@5"] == 0.1648
    assert bge.figures["Biology"]["recall@100"] == 0.40968
    assert bge.origins["Biology"] == "R2MED@62b7074"
    assert reranked.origins["Biology"] == "R2MED@45cbac5"


def test_bm25_by_task_is_the_published_row() -> None:
    row = published_systems("full")["bm25"].figures

    assert [round(100 * row[task]["ndcg@10"], 2) for task in TASKS] == [
        19.19, 21.55, 19.68, 0.66, 2.55, 23.69, 21.66, 12.02,
    ]  # fmt: skip


def test_contrast_collections_are_no_task_of_the_suite() -> None:
    held = {task for s in published_systems("full").values() for task in s.figures}

    assert held - set(TASKS) == set(CONTRAST)


def test_every_name_is_a_system_in_canonical_text() -> None:
    for suite in ("full", "nano"):
        for spec in published_systems(suite):
            assert str(parse(spec)) == spec


def test_nano_profiles_give_the_published_query_weighted_and_task_means() -> None:
    entries = find_suite("nano").entries
    weights = [entry.counts["queries"] for entry in entries]
    found = {}
    for spec, system in published_systems("nano").items():
        values = [system.figures[entry.name]["ndcg@10"] for entry in entries]
        weighted = sum(map(lambda v, w: v * w, values, weights)) / sum(weights)
        found[spec] = (round(weighted, 4), round(fmean(values), 4))

    assert found == {
        "candidates:bm25": (0.2110, 0.2094),
        "candidates:harrier_oss_v1_270m": (0.2980, 0.3007),
        "candidates:reranking_hybrid": (0.2899, 0.2882),
    }


def test_nothing_is_published_for_the_demo_suite() -> None:
    assert not published_systems("demo")
