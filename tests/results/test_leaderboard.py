"""The leaderboard: published and measured in one ranking, and nothing compared by accident."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

import r2med
from r2med.errors import UsageError
from r2med.report.drawing import draw
from r2med.report.formats import Page
from r2med.results.leaderboard import GAIN_TITLES, Leaderboard, leaderboard
from r2med.results.record import Result
from r2med.results.standings import Standing
from r2med.systems.output import StageCost
from r2med.tasks.registry import find_suite
from tests.results.storing import ranks, store

ROOT = Path("kept")
TASKS = [entry.name for entry in find_suite("demo").entries]
FULL = [entry.name for entry in find_suite("full").entries]


def row(board: Leaderboard, system: str, origin: str = "measured") -> Standing:
    return next(r for r in board.rows if (r.system, r.origin) == (system, origin))


def stored_on(tasks: list[str], system: str, *values: int, data: str | None = None) -> list[Result]:
    return [store(ROOT, system, task, ranks(*values), data=data) for task in tasks]


def test_published_systems_are_ranked_by_the_task_mean() -> None:
    board = leaderboard()

    published = [r.system for r in board.rows if r.origin == "published"]
    assert published[:2] == ["query2doc:gpt4 | nv", "hyde:o3-mini | nv"]
    assert [r.rank for r in board.rows] == list(range(1, 155))
    assert "each task counts once" in board.mean_title


def test_classical_reranking_hurts_and_reasoning_helps() -> None:
    board = leaderboard()

    gains = {group: [r.gain for r in board.rows if r.group == group] for group in GAIN_TITLES}

    assert all(gain is not None and gain < 0 for gain in gains["classical"])
    assert all(gain is not None and gain > 0 for gain in gains["gar"])
    assert [(each.group, each.systems, each.better) for each in board.gains] == [
        ("gar", 73, 73),
        ("classical", 11, 0),
        ("reasoning", 17, 15),
        ("prompted", 3, 3),
    ]
    assert row(board, "nv | rankllama@10", "published").gain == pytest.approx(-0.0150, abs=1e-4)


def test_a_gain_is_known_even_when_the_first_stage_is_not_shown() -> None:
    board = leaderboard(kind="reranker")

    assert len(board.rows) == 6 + 25
    assert {r.first_stage for r in board.rows if r.gain} == {"nv", "e5", "diver"}


def test_a_family_narrows_the_tasks_and_the_mean() -> None:
    board = leaderboard(family="clinical case")

    nv = row(board, "nv", "published")

    assert list(nv.values) == ["PMC-Clinical", "IIYi-Clinical"]
    assert nv.mean == pytest.approx(sum(nv.values.values()) / 2)


def test_an_unknown_family_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="clinical case"):
        leaderboard(family="clinical cases")


def test_systems_without_a_metric_are_counted_not_ranked() -> None:
    board = leaderboard(metric="mrr")

    assert len(board.rows) == 24
    assert board.notes == (
        "54 of 78 published systems have no figure for mrr; later works report ndcg@10 only.",
    )


def test_the_nano_board_weighs_queries_unless_asked_otherwise() -> None:
    by_query = leaderboard("nano")
    by_task = leaderboard("nano", mean="task")

    dense = "candidates:harrier_oss_v1_270m"
    assert row(by_query, dense, "published").mean == pytest.approx(0.2980, abs=5e-5)
    assert row(by_task, dense, "published").mean == pytest.approx(0.3007, abs=5e-5)


def test_nano_recall_is_micro_so_its_mean_is_over_all_positives() -> None:
    board = leaderboard("nano", metric="recall@100")

    bm25 = row(board, "candidates:bm25", "published")

    assert bm25.values["NanoR2MEDMedQADiag"] == pytest.approx(121 / 522)
    assert bm25.mean is not None
    assert bm25.mean * 2678 == pytest.approx(round(bm25.mean * 2678), abs=1e-4)


def test_a_mean_weighted_by_positives_is_never_called_query_weighted() -> None:
    board = leaderboard("nano", metric="recall@100")

    told = board.to_json()

    assert "each positive counts once" in board.mean_title
    assert "query-weighted" not in told["ranked_by"]
    assert "query_weighted_mean" not in told["rows"][0]
    assert told["rows"][0]["micro_mean"] == board.rows[0].mean
    assert told["rows"][0]["queries"] == 876


def test_measured_systems_stand_in_the_same_ranking_with_an_interval() -> None:
    results = stored_on(TASKS, "bm25", 1, 2, 3, 0, 1)

    board = leaderboard("demo", results=results)

    found = row(board, "bm25")
    assert found.rank == 1
    assert found.mean is not None and found.interval is not None
    assert found.mean in found.interval
    assert found.marks == ()


def test_a_system_that_lacks_tasks_has_no_mean_and_no_rank() -> None:
    results = [*stored_on(TASKS, "bm25", 1, 2), *stored_on(TASKS[:3], "bm25-lucene", 1, 1)]

    board = leaderboard("demo", results=results)

    partial = board.rows[-1]
    assert (partial.system, partial.mean, partial.rank) == ("bm25-lucene", None, None)
    assert partial.marks == (
        "3 of 8 tasks measured: no mean, no rank; on these tasks 100.00, rank 1 of 2 "
        f"(--task {','.join(TASKS[:3])})",
    )


def test_data_that_differs_from_the_manifest_is_marked_and_conforming_data_is_not() -> None:
    other = ("documents_text.unique_texts 5 instead of 49,434",)
    results = [
        *stored_on(FULL, "bm25", 1, 0),
        *[store(ROOT, s, "Biology", ranks(1), data="x", differences=other) for s in ("nv", "bge")],
    ]

    board = leaderboard(results=results)

    marked = "The data differs from the manifest of Biology: documents_text.unique_texts 5 instead"
    assert all(marked in row(board, system).marks[0] for system in ("nv", "bge"))
    assert row(board, "bm25").marks == row(board, "bm25", "published").marks == ()


def test_rows_on_other_data_than_their_neighbours_are_marked_and_never_tied() -> None:
    results = [
        *stored_on(TASKS, "bm25", 1, 2, 1),
        *stored_on(TASKS, "bm25-nano", 1, 2, 1),
        *stored_on(TASKS, "bm25-lucene", 1, 2, 1, data="other"),
    ]

    board = leaderboard("demo", results=results)

    assert "other data" in row(board, "bm25-lucene").marks[0]
    assert [r.letters for r in board.rows] == ["a", "a", ""]


def test_rows_on_older_data_of_a_folder_are_marked() -> None:
    old = store(ROOT, "bm25", "mine", ranks(1), data="old", suite=None)
    new = store(ROOT, "bm25-nano", "mine", ranks(1), data="new", suite=None)
    folder = replace(new.record.task, folder=".")
    results = [Result.from_record(r.folder, replace(r.record, task=folder)) for r in (new,)] + [old]

    board = leaderboard("local", results=results)

    assert row(board, "bm25").marks == ("ran on other data of mine than the newest measured row",)
    assert row(board, "bm25-nano").marks == ()


def dropped(system: str, count: int, *, data: str | None = None) -> list[Result]:
    """One query of so many tasks at rank 2, the others at rank 1."""
    return [
        store(ROOT, system, task, ranks(2 if place < count else 1), data=data)
        for place, task in enumerate(TASKS)
    ]


def test_a_chain_of_small_steps_does_not_tie_its_ends() -> None:
    results = [*dropped("bm25", 0), *dropped("bm25-nano", 4), *dropped("bm25-lucene", 8)]

    board = leaderboard("demo", results=results)

    assert [(r.system, r.letters) for r in board.rows] == [
        ("bm25", "a"),
        ("bm25-nano", "ab"),
        ("bm25-lucene", "b"),
    ]


def test_letters_are_corrected_for_the_number_of_pairs() -> None:
    results = [*dropped("bm25", 0), *dropped("bm25-nano", 6)]
    others = [*dropped("bm25-lucene", 3), *dropped("bm25[k1=2]", 4)]

    alone = leaderboard("demo", results=results)
    among = leaderboard("demo", results=[*results, *others])

    assert [r.letters for r in alone.rows] == ["a", "b"]
    assert {r.letters for r in among.rows} == {"a"}


def test_a_row_on_other_data_in_between_does_not_end_a_group() -> None:
    results = [
        *dropped("bm25", 0),
        *dropped("bm25-nano", 1, data="other"),
        *dropped("bm25-lucene", 2),
    ]

    board = leaderboard("demo", results=results)

    assert {r.system: r.letters for r in board.rows} == {
        "bm25": "a",
        "bm25-lucene": "a",
        "bm25-nano": "",
    }


def test_a_measured_reranker_is_held_against_its_measured_first_stage() -> None:
    results = [
        *stored_on(TASKS, "bm25", 1, 1),
        *stored_on(TASKS, "bm25 | rankllama@10", 2, 2),
    ]

    board = leaderboard("demo", results=results)

    reranked = row(board, "bm25 | rankllama@10")
    assert (reranked.kind, reranked.first_stage) == ("reranker", "bm25")
    assert reranked.gain is not None and reranked.gain < 0


@pytest.mark.parametrize(
    ("metric", "has_gain"),
    [("recall@100", False), ("hit@100", False), ("recall@10", True), ("ndcg@100", True)],
)
def test_a_reranker_has_no_gain_in_a_metric_that_its_order_cannot_change(
    metric: str, has_gain: bool
) -> None:
    results = [
        *stored_on(TASKS, "bm25", 1, 1),
        *stored_on(TASKS, "bm25 | rankllama@100", 2, 2),
    ]

    board = leaderboard("demo", metric=metric, results=results)

    assert (row(board, "bm25 | rankllama@100").gain is not None) == has_gain
    assert bool(board.gains) == has_gain


def test_printed_rerankers_at_100_have_no_gain_in_recall_at_100() -> None:
    rows = leaderboard("full", metric="recall@100", kind="reranker", results=[]).rows

    gains = {row.system: row.gain for row in rows}
    assert gains["nv | monobert@100"] is None
    assert gains["nv | monobert@10"] is not None  # printed lists of 10 documents


def test_a_gain_over_a_published_first_stage_is_marked() -> None:
    results = stored_on(FULL, "bm25 | rankllama@10", 1, 1)

    board = leaderboard(results=results)

    reranked = row(board, "bm25 | rankllama@10")
    assert reranked.gain_over == "bm25 (published)"
    assert "published figure of bm25" in reranked.marks[0]


def test_the_newest_result_counts_and_older_ones_are_mentioned() -> None:
    old = store(ROOT, "bm25", TASKS[0], ranks(0), data="old")
    new = store(ROOT, "bm25", TASKS[0], ranks(1), data="new")

    board = leaderboard("demo", results=[new, old])

    assert board.rows[0].values == {TASKS[0]: 1.0}
    assert "older" in board.notes[0]


def test_costs_add_up_over_tasks_and_stay_unknown_where_nothing_was_reported() -> None:
    search = StageCost("bm25", "search", 1.5, tokens=100, money=0.5)
    results = [store(ROOT, "bm25", task, ranks(1), costs=(search,)) for task in TASKS]
    plain = stored_on(TASKS, "bm25-nano", 1)

    board = leaderboard("demo", results=[*results, *plain])

    with_costs, without = row(board, "bm25").cost, row(board, "bm25-nano").cost
    assert with_costs is not None and without is not None
    assert (with_costs.query_seconds, with_costs.query_tokens) == (12.0, 800)
    assert with_costs.money == 4.0
    assert (without.query_tokens, without.money) == (None, None)


def test_tie_bounds_hold_the_mean_where_the_data_is_here() -> None:
    family = "clinical case"
    tasks = [entry.name for entry in find_suite("demo").entries if entry.family == family]
    results = r2med.evaluate_all(["bm25"], tasks, results=ROOT)
    other = stored_on(tasks, "bm25-nano", 1, data="other")

    board = leaderboard("demo", family=family, ties=True, results=[*results, *other])

    found = row(board, "bm25")
    assert found.ties is not None and found.mean is not None
    assert found.ties[0] <= found.mean <= found.ties[1]
    assert row(board, "bm25-nano").ties is None


def test_the_first_rows_are_shown_under_the_summary_of_all() -> None:
    whole, first = leaderboard(results=[]), leaderboard(results=[], top=3)

    assert len(first.shown) == len(first.to_json()["rows"]) == first.to_arrow().num_rows == 3
    assert first.gains == whole.gains
    summary = "classical rerankers: 0 of 11 rows gain"
    assert summary in " ".join(str(whole).split()) and summary in " ".join(str(first).split())


def test_the_legend_claims_only_what_was_tested() -> None:
    alone = leaderboard("demo", results=stored_on(TASKS, "bm25", 1, 2))
    micro = leaderboard("nano", metric="recall@100", results=[])

    assert all("share a letter" not in str(board) for board in (alone, micro))
    assert "interval over queries" not in str(micro)


def test_the_exports_hold_every_row_and_both_means() -> None:
    board = leaderboard(results=stored_on(FULL[:2], "bm25", 1))

    told = board.to_json()
    table = list(csv.DictReader(io.StringIO(board.to_csv())))
    page = Page()
    draw(board, page)

    assert len(told["rows"]) == len(table) == 155
    assert float(table[0]["task_mean"]) == told["rows"][0]["task_mean"]
    assert float(table[0]["query_weighted_mean"]) == told["rows"][0]["query_weighted_mean"]
    assert float(table[0]["Biology"]) == told["rows"][0]["values"]["Biology"]
    assert told["rows"][-1]["marks"][0].startswith("2 of 8 tasks measured: no mean, no rank; on")
    assert "| 18 | `query2doc:gpt4 \\| nv` | publ | 41.65 |" in page.to_markdown()


def test_a_stored_result_that_names_no_system_is_noted_and_left_out() -> None:
    measured = [*stored_on(TASKS, "bm25", 1, 2), *stored_on(TASKS, "a | b[x", 1, 2)]

    board = leaderboard("demo", results=measured)

    assert [r.system for r in board.rows] == ["bm25"]
    assert any("'a | b[x' is not a valid system spec" in note for note in board.notes)


def test_scores_of_queries_are_read_only_for_rows_with_details() -> None:
    systems = ("bm25", "bm25-lucene", "bm25[k1=0.1]", "bm25[k1=0.2]")
    results = [
        store(ROOT, system, task, ranks(*[1 + place] * 9))
        for place, system in enumerate(systems)
        for task in TASKS
    ]

    board = leaderboard("demo", results=results, detail=1)

    assert [row.system for row in board.rows] == list(systems)
    assert [row.interval is not None for row in board.rows] == [True, True, False, False]
    assert not any("scores" in vars(result) for result in board.rows[-1].results.values())
    [last] = board.add_details(board.rows[-1:])
    assert last.interval is not None and last.cost is not None


def test_a_row_with_damaged_scores_is_marked_once() -> None:
    results = [store(ROOT, "bm25", task, ranks(1, 2)) for task in TASKS]
    (results[0].folder / "scores.parquet").write_bytes(b"damaged")
    stored = [replace(result, tables={}) for result in results]

    board = leaderboard("demo", results=stored)

    [row] = board.add_details(board.rows)
    assert [mark for mark in row.marks if "scores.parquet" in mark] == list(row.marks)
    assert len(row.marks) == 1
