"""Reranked scores come with their ceiling and with what a reader must know."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

import r2med
from r2med.report.scores import reranking_notes, score_layouts, truncation_notes
from r2med.report.table import print_fitting
from r2med.results.record import Result
from r2med.tasks.registry import find_suite


class Lengths:
    identity = "lengths"

    def predict(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        return [float(len(text)) for _, text in pairs]


def evaluated(*systems: str, tasks: Sequence[str] = ("demo/biology",)) -> list[Result]:
    return r2med.evaluate_all(list(systems), list(tasks), models={"mine": Lengths()})


def shown(results: Sequence[Result]) -> str:
    out = io.StringIO()
    console = Console(file=out, width=80)
    for layouts in score_layouts(results, ["ndcg@10", "recall@100"]):
        print_fitting(layouts, console)
    return out.getvalue()


@pytest.mark.parametrize(
    ("systems", "tasks"),
    [
        (["bm25", "bm25 | mine@10"], ["demo/biology"]),
        (["bm25 | mine@10"], ["demo/biology"]),
        (["bm25", "bm25 | mine@10"], ["demo/biology", "demo/medqa-diag"]),
    ],
)
def test_the_ceiling_stands_beside_every_reranked_score(
    systems: list[str], tasks: list[str]
) -> None:
    results = evaluated(*systems, tasks=tasks)

    table = shown(results)

    for result in results:
        if result.record.reranking:
            assert f"{100 * result.record.reranking.ceiling['ndcg@10']:.2f}" in table
    assert "ceiling" in table


def test_every_metric_that_was_asked_for_is_shown() -> None:
    results = evaluated("bm25", "bm25-nano", tasks=["demo/biology", "demo/medqa-diag"])
    edition = find_suite("demo").entries[0].edition

    assert [
        grids[0].title for grids in score_layouts(results, ["ndcg@10", "recall@25", "mrr"])
    ] == [
        f"{metric} · demo suite, edition {edition}, not comparable with published figures"
        for metric in ("ndcg@10", "recall@25", "mrr")
    ]
    assert len(list(score_layouts(results))) == 1


def test_metrics_deeper_than_the_reranked_part_say_so() -> None:
    results = evaluated("bm25", "bm25 | mine@10", "bm25 | mine[tail=drop]@10", "bm25 | mine@100")

    notes = list(reranking_notes(results, ["ndcg@10", "recall@100"]))

    assert notes[1:] == [
        "recall@100 reads deeper than the 10 documents that bm25 | mine@10 reranks: below them "
        "is the first stage's order (tail=keep).",
        "recall@100 reads deeper than the 10 documents that bm25 | mine[tail=drop]@10 reranks: "
        "the list ends there (tail=drop).",
    ]


def test_systems_that_do_not_rerank_have_no_notes() -> None:
    assert list(reranking_notes(evaluated("bm25"), ["ndcg@10", "recall@100"])) == []


def test_samples_of_one_task_share_a_table_wherever_they_stand() -> None:
    tasks = ("demo/biology", "demo/medqa-diag")
    systems = ("bm25", "bm25-nano")
    results = [r2med.evaluate(system, task, sample=3) for system in systems for task in tasks]

    assert len(list(score_layouts(results))) == len(tasks)


def test_truncated_queries_are_reported_as_truncated_documents_are() -> None:
    pytest.importorskip("wordllama")

    notes = " ".join(truncation_notes(evaluated("wordllama[max_length=4]")))

    assert "of the documents of demo/biology" in notes
    assert "of the queries of demo/biology" in notes
