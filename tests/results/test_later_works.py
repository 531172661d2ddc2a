"""Figures that later works print: all of them, of known models, and never one for another."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from r2med.errors import UsageError
from r2med.results.leaderboard import Leaderboard, leaderboard
from r2med.results.overlap import flags_of
from r2med.results.published import later_rows, printed_figures, read_rows, works
from r2med.results.standings import Standing
from r2med.systems.registry import entries
from r2med.tasks.registry import find_suite
from tests.cli.running import run
from tests.results.test_leaderboard import TASKS, stored_on

FULL = find_suite("full").entries
#: Ten rows copied from the table by hand: work, system, eight cells.
ROWS = {
    ("reasonembed", "reasonembed-8b"): "54.01 66.33 67.64 20.93 27.96 51.38 33.76 23.43",
    ("reasonembed", "diver"): "39.27 51.68 50.81 13.94 16.1 38.56 24.69 22.81",
    ("reasonrank", "e5"): "18.28 41.47 41.01 6.44 11.38 19.81 30.97 21.37",
    ("reasonrank", "e5 | rank1-32b@100"): "31.84 61.65 59.74 16.56 26.9 41.31 45.56 29.49",
    ("reasonrank", "e5 | rankt5-3b@100"): "13.2 32.84 23.38 2.09 4.18 0.61 14.55 12.39",
    ("grouprank", "diver"): "49.3 60.4 57.9 18.6 22.6 58.7 44.1 31.8",
    ("grouprank", "diver | grouprank-32b@100"): "59.5 69.7 66.3 28.8 41.5 67.6 52.2 32.7",
    ("mteb", "e5"): "18.54 38.51 41.19 10.89 13.9 28.91 25.18 21.75",
    ("mteb", "lens-d8000"): "7.82 29.56 31.87 3.63 1.53 13.46 10.41 18.59",
    ("page", "hyde:o3-mini | openai"): "31.5 48.61 48.19 31.74 39.51 51.69 38.92 22.56",
}


@pytest.fixture(scope="module")
def board() -> Leaderboard:
    return leaderboard(results=[])


def row(board: Leaderboard, system: str) -> Standing:
    return next(each for each in board.rows if each.system == system)


def test_every_row_of_the_table_is_of_a_known_model() -> None:
    rows, unmapped = later_rows()

    assert (len(rows), unmapped) == (137, ())
    assert sum(each.works[0].id == "page" for each in rows) == 67


@pytest.mark.parametrize(("work", "system"), ROWS)
def test_figures_are_those_of_the_table(work: str, system: str) -> None:
    figures = printed_figures("full", "ndcg@10")[system]
    found = next(each for each in figures if work in [one.id for one in each.works])

    wanted = [float(cell) for cell in ROWS[work, system].split()]
    assert [round(100 * found.values("ndcg@10")[task.name], 2) for task in FULL] == wanted


def test_a_row_of_an_unknown_model_or_work_is_listed_and_not_dropped() -> None:
    source = works()["mteb"].source
    head = "source\tstage\tsystem\tavg_reported\t" + "\t".join(t.name.lower() for t in FULL)
    cells = "\t".join(["1"] * 9)
    lines = [head, f"{source}\tretriever\tnew/model@1\t{cells}", f"X\tretriever\tBM25\t{cells}"]

    rows, unmapped = read_rows(lines, {"BM25": ("bm25", "")})

    assert rows == ()
    assert unmapped == (f"new/model@1 ({source}, retriever)", "BM25 (X, retriever)")


def test_equal_figures_are_one_row_with_several_sources(board: Leaderboard) -> None:
    bge = row(board, "bge")

    assert [source.id for source in bge.sources] == ["r2med", "page", "mteb"]
    assert (bge.spread, bge.other_figures) == (None, ())


def test_different_figures_of_one_system_are_one_row_with_a_spread(board: Leaderboard) -> None:
    diver, medcpt = row(board, "diver"), row(board, "medcpt")

    assert sum(each.system == "diver" for each in board.rows) == 1
    assert diver.spread is not None
    assert (diver.spread.low, diver.spread.high) == pytest.approx((0.322325, 0.42925))
    assert [source.id for source in diver.other_figures[0].sources] == ["grouprank"]
    assert [other.sources[0].id for other in medcpt.other_figures] == ["page"]


def test_a_row_says_where_it_stands(board: Leaderboard) -> None:
    reranked, published = row(board, "e5 | reasonrank-7b@100"), row(board, "hyde:gpt4 | nv")

    assert (reranked.origin, reranked.first_stage, reranked.depth) == ("later", "e5", 100)
    assert (reranked.date, reranked.sources[0].table) == ("2025-08", "table 2")
    assert (published.origin, published.first_stage, published.depth) == ("published", "nv", None)


def test_a_gain_is_over_the_first_stage_that_the_same_work_prints(board: Leaderboard) -> None:
    on_diver, on_e5 = row(board, "diver | first-7b@100"), row(board, "e5 | rank1-7b@100")

    assert on_diver.gain == pytest.approx(0.282125 - 0.42925)
    assert on_e5.gain == pytest.approx(0.32303750 - 0.2384125)


def test_every_printed_reranker_and_every_engine_of_one_has_a_class(board: Leaderboard) -> None:
    kinds = {each.group for each in board.rows if each.kind == "reranker"}
    named = [entry for entry in entries().values() if entry.stage == "reranker"]
    measured = [f"bm25 | {entry.name}@10" for entry in named if entry.backend != "own"]
    results = [each for system in measured for each in stored_on(TASKS, system, 1)]

    own = leaderboard("demo", results=results).rows

    assert kinds == {"classical", "reasoning", "prompted"}
    assert len(own) == len(measured) and "reranker" not in {each.group for each in own}
    assert {each.system: each.group for each in own}["bm25 | reasonrank@10"] == "reasoning"


def test_rows_whose_model_trained_on_a_task_are_flagged(board: Leaderboard) -> None:
    diver, reranked, nv = (row(board, name) for name in ("diver", "diver | first-7b@100", "nv"))

    assert {flag.task for flag in diver.flags} == {"Biology", "MedQA-Diag"}
    assert str(diver.flags[0]) == "diver declares BRIGHT, and Biology is BRIGHT/Biology"
    assert diver.flags[0].source
    assert diver.flags == reranked.flags
    assert (nv.flags, nv.clean) == ((), None)


@pytest.mark.parametrize("name", ["reasonembed-8b", "reasonembed-4b", "reasonembed-llama"])
def test_models_trained_on_queries_written_from_bright_are_flagged_alike(
    board: Leaderboard, name: str
) -> None:
    own, reasonir = row(board, name), row(board, "reasonir")

    assert [flag.task for flag in own.flags] == [flag.task for flag in reasonir.flags]
    assert [flag.task for flag in own.flags] == ["Biology"]
    assert "data_synthesis/README.md" in own.flags[0].source
    left = [value for task, value in own.values.items() if task != "Biology"]
    assert own.clean == pytest.approx(fmean(left))


def test_the_mean_without_flagged_tasks_stands_beside_the_mean(board: Leaderboard) -> None:
    diver = row(board, "diver")

    left = [value for task, value in diver.values.items() if task not in ("Biology", "MedQA-Diag")]
    assert diver.clean == pytest.approx(fmean(left))


def test_all_can_be_ranked_without_flagged_tasks() -> None:
    board = leaderboard(results=[], without_flagged=True)

    assert len(board.tasks) == 6
    assert "6 of 8 tasks" in board.mean_title
    assert not board.flagged and all(each.clean is None for each in board.rows)


def test_what_a_system_declares_comes_with_who_says_so() -> None:
    found = flags_of("diver | rankllama@10", FULL)

    assert [(each.task, each.model, each.collection) for each in found] == [
        ("Biology", "diver", "BRIGHT"),
        ("MedQA-Diag", "diver", "MedQA"),
    ]
    assert all(each.source for each in found)
    assert flags_of("bm25", FULL) == ()


def test_nano_tasks_are_flagged_as_the_tasks_they_stand_for_and_demo_texts_are_not() -> None:
    nano, demo = (find_suite(name).entries for name in ("nano", "demo"))

    assert [flag.task for flag in flags_of("reasonir", nano)] == ["NanoR2MEDBiology"]
    assert flags_of("reasonir", demo) == ()


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"method": "search-o1", "first_stage": "nv"}, 2),
        ({"llm": "gpt4", "first_stage": "bm25"}, 3),
        ({"kind": "reranker", "first_stage": "e5"}, 10),
        ({"only": ["intfloat/e5-mistral-7b-instruct", "nv"]}, 2),
    ],
)
def test_filters_choose_rows_and_ranks_stay_those_among_all(
    board: Leaderboard, filters: dict[str, object], expected: int
) -> None:
    some = leaderboard(results=[], **filters)  # type: ignore[arg-type]

    assert len(some.rows) == expected and some.hidden == 154 - expected
    assert all(each.rank == row(board, each.system).rank for each in some.rows)


def test_tasks_choose_the_suite_and_the_mean_says_so() -> None:
    some = leaderboard(results=[], task="Biology,MedQA-Diag")
    demo = leaderboard(results=[], task="demo/biology")

    assert "task mean over 2 of 8 tasks" in some.mean_title
    assert row(some, "nv").mean == pytest.approx((0.27149 + 0.16719) / 2, abs=1e-4)
    assert (demo.suite.name, [task.name for task in demo.tasks]) == ("demo", ["demo/biology"])


def test_tasks_of_two_suites_have_no_leaderboard() -> None:
    with pytest.raises(UsageError, match="one suite at a time"):
        leaderboard(results=[], task="Biology,demo/biology")


def test_rows_measured_here_are_shown_whatever_the_top() -> None:
    results = [*stored_on(TASKS, "bm25", 1, 1), *stored_on(TASKS, "bm25-lucene", 2, 2)]

    shown = leaderboard("demo", results=results, top=1).shown

    assert [each.system for each in shown] == ["bm25", "bm25-lucene"]


def test_data_of_the_users_own_is_a_suite_like_any_other(tmp_path: Path) -> None:
    for name in ("wards", "clinics"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "corpus.jsonl").write_text(
            '{"id": "a", "text": "fever and cough"}\n{"id": "b", "text": "broken leg"}\n'
        )
        (folder / "query.jsonl").write_text('{"id": "1", "text": "cough"}\n')
        (folder / "qrels.jsonl").write_text('{"q_id": "1", "p_id": "a", "score": 1}\n')
    folders = f"{tmp_path / 'wards'},{tmp_path / 'clinics'}"
    for system in ("bm25", "bm25-lucene"):
        assert run("eval", system, "--task", folders).code == 0

    whole = leaderboard("local")
    one = leaderboard(task=str(tmp_path / "wards"))
    named = leaderboard(task="clinics")

    assert {task.name for task in whole.tasks} == {"wards", "clinics"}
    assert [(each.rank, each.mean, each.marks) for each in whole.rows] == [(1, 1.0, ())] * 2
    assert all(each.letters == "a" for each in whole.rows)
    assert (one.mean_title, list(one.rows[0].values)) == (
        "task mean over wards (each task counts once)",
        ["wards"],
    )
    assert list(named.rows[0].values) == ["clinics"]
    assert "Your data leaderboard" in str(whole) and "wards" in str(whole)
