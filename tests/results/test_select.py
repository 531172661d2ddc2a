"""Which results a name means: one rule for versions, data and tasks, the same for every reader."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

import r2med
from r2med.errors import DataError, MissingError, UsageError
from r2med.explore.library import Library
from r2med.explore.pages.task import task_page
from r2med.explore.render import server_link
from r2med.report import scores as report_scores
from r2med.results.compare import compare, select_systems
from r2med.results.diagnosis.diagnose import diagnose
from r2med.results.evaluation import Evaluation, list_results
from r2med.results.export import export_csv, export_mteb
from r2med.results.gates import Gate
from r2med.results.leaderboard import Leaderboard, leaderboard
from r2med.results.movement import compare_queries
from r2med.results.power import compare_power
from r2med.results.record import Result
from r2med.results.select import ResultSet, find_path
from r2med.results.versions import group_systems
from r2med.tasks.registry import find_suite, find_task
from tests.results.diagnosis.collections import task_of
from tests.results.storing import ranks, store
from tests.tasks.writing import write_r2med

TASK = "demo/biology"
TASKS = [entry.name for entry in find_suite("demo").entries]
OLD, NEW = "2026-01-01T00:00:00+00:00", "2026-02-01T00:00:00+00:00"


def store_version(root: Path, weights: str, tasks: list[str], rank: int, created: str) -> None:
    """Results of `tiny=dense:./tiny` with some weights."""
    for task in tasks:
        store(
            root,
            "dense:./tiny",
            task,
            ranks(rank, rank, 0),
            created=created,
            identity={"checkpoint": weights},
            label="tiny",
        )


def retrained(root: Path) -> None:
    """The old weights on all tasks, new weights on one of them, and BM25 on all."""
    store_version(root, "old", TASKS, 2, OLD)
    store_version(root, "new", [TASK], 1, NEW)
    for task in TASKS:
        store(root, "bm25", task, ranks(3, 3, 0))


def rows_of(board: Leaderboard, spec: str) -> list[object]:
    return [row for row in board.rows if row.system == spec and row.origin == "measured"]


@pytest.mark.parametrize("text", ["BM25", "bm25", " Bm25 ", "(bm25)"])
def test_a_system_is_found_however_it_is_written(text: str, tmp_path: Path) -> None:
    result = store(tmp_path, "bm25", TASK, ranks(1))

    assert ResultSet.open([result]).find_results(text) == [result]


def test_a_name_without_separator_or_suffix_is_never_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bm25").write_text("1 Q0 a 1 1 x\n")
    Path("mine.trec").write_text("1 Q0 a 1 1 x\n")

    assert find_path("bm25") is None
    assert find_path("./bm25") == Path("bm25")
    assert find_path("mine.trec") == Path("mine.trec")


@pytest.mark.parametrize("name", ["x" * 5000, "a/" * 3000, "/\x00"])
def test_a_name_that_no_file_system_could_hold_is_not_a_path(name: str) -> None:
    assert find_path(name) is None


def test_a_folder_of_a_result_is_found_by_its_path(tmp_path: Path) -> None:
    result = store(tmp_path, "bm25", TASK, ranks(1))

    [system] = ResultSet((), "").select([str(result.folder)]).systems

    assert [each.folder for each in system.results.values()] == [result.folder]  # type: ignore[union-attr]


def test_a_system_without_results_names_the_nearest_and_the_command(tmp_path: Path) -> None:
    result = store(tmp_path, "bm25-nano", TASK, ranks(1))

    with pytest.raises(MissingError, match=r"'bm25-nano'.*\n.*r2med eval bm25 --task TASK"):
        ResultSet.open([result]).select(["bm25"])


def test_a_row_never_mixes_two_versions_of_a_model(tmp_path: Path) -> None:
    retrained(tmp_path)

    board = leaderboard("demo", results=tmp_path)

    complete, newer = (row for row in board.rows if row.system == "dense:./tiny")
    assert complete.name == "tiny"
    assert len(complete.values) == len(TASKS)
    assert {
        result.record.system.identity["checkpoint"] for result in complete.results.values()
    } == {"old"}
    assert list(newer.values) == [TASK]
    assert newer.rank is None
    assert any(TASK in mark and "never averaged" in mark for mark in newer.marks)


def test_a_comparison_never_mixes_two_versions_and_says_which_it_uses(tmp_path: Path) -> None:
    retrained(tmp_path)
    told: list[str] = []

    everywhere = compare("tiny", "bm25", results=tmp_path, tell=told.append)
    on_one = compare("tiny", "bm25", task=TASK, results=tmp_path, tell=told.append)

    assert len(everywhere.tasks) == len(TASKS)
    assert everywhere.tasks[TASK][0].scores[0] == pytest.approx(1 / 1.584962500721156)
    assert on_one.tasks[TASK][0].scores[0] == 1.0
    assert "2 stored versions" in told[0]
    assert TASK in told[0]
    assert 'checkpoint ("old" and "new")' in told[0]


def test_an_export_for_mteb_never_mixes_two_versions(tmp_path: Path) -> None:
    retrained(tmp_path)

    paths = export_mteb(ResultSet.open(tmp_path).find_results("tiny"), tmp_path / "out")

    by_revision: dict[str, int] = {}
    for path in paths:
        by_revision[path.parent.name] = by_revision.get(path.parent.name, 0) + 1
    assert sorted(by_revision.values()) == [1, len(TASKS)]


def test_rows_of_a_csv_tell_two_versions_apart(tmp_path: Path) -> None:
    retrained(tmp_path)

    paths = export_csv(ResultSet.open(tmp_path).find_results("tiny"), tmp_path / "out")

    for path in paths:
        with path.open(newline="") as file:
            versions = {(row["version"], row["task"]) for row in csv.DictReader(file)}
        by_version = Counter(version for version, _ in versions)
        assert sorted(by_version.values()) == [1, len(TASKS)]


def test_one_system_under_two_specs_is_run_once_and_has_one_row(tmp_path: Path) -> None:
    first = r2med.evaluate("bm25", TASK, results=tmp_path)
    second = r2med.evaluate("bm25[k1=0.9,b=0.4]", TASK, results=tmp_path)

    board = leaderboard("demo", task=TASK, results=tmp_path)

    assert second.folder == first.folder
    assert len(board.rows) == 1
    found = ResultSet.open(tmp_path).find_results("bm25[k1=0.9,b=0.4]")
    assert [result.folder for result in found] == [first.folder]


def test_a_label_belongs_to_the_system_on_all_of_its_tasks(tmp_path: Path) -> None:
    for task in TASKS[:3]:
        r2med.evaluate("bm25", task, results=tmp_path)
        r2med.evaluate("bm25-nano", task, results=tmp_path)
    r2med.evaluate("mine=bm25", TASKS[0], results=tmp_path)

    compared = compare("mine", "bm25-nano", results=tmp_path)
    by_spec = compare("bm25", "bm25-nano", results=tmp_path)

    assert list(compared.tasks) == list(by_spec.tasks) == TASKS[:3]
    assert compared.systems == by_spec.systems == ("mine", "bm25-nano")


def test_tasks_that_one_system_lacks_are_left_out_by_name(tmp_path: Path) -> None:
    retrained(tmp_path)
    store(tmp_path, "bm25-nano", TASK, ranks(1, 1, 0))
    told: list[str] = []

    comparison = compare("bm25-nano", "bm25", results=tmp_path, tell=told.append)

    assert list(comparison.tasks) == [TASK]
    assert set(comparison.left_out) == set(TASKS) - {TASK}
    assert "1 of 8 tasks are compared" in told[-1]
    assert "bm25-nano has no stored result on it" in told[-1]


def test_a_gate_refuses_systems_with_different_tasks(tmp_path: Path) -> None:
    retrained(tmp_path)
    store(tmp_path, "bm25-nano", TASK, ranks(1, 1, 0))
    selection = select_systems(
        "bm25-nano",
        "bm25",
        task=None,
        metric="ndcg@10",
        results=tmp_path,
        root=None,
        tell=lambda message: None,
    )

    with pytest.raises(UsageError, match="needs results of both systems on the same tasks"):
        Gate.parse("ndcg@10 drops by 1").check(selection)


def test_scores_and_ranks_of_moved_queries_are_of_the_same_data(tmp_path: Path) -> None:
    queries, judged = {"q": "belly pain"}, {"q": {"a": 1}}
    before = {"a": "belly pain", "b": "nothing"}
    after = {**before, "c": "belly pain belly pain", "d": "belly belly pain"}
    results = tmp_path / "results"
    for corpus in (after, before):
        task_of(tmp_path / "task", corpus, queries, judged)
        for system in ("bm25", "bm25-lucene"):
            r2med.evaluate(system, str(tmp_path / "task"), results=results)

    movement = compare_queries("bm25", "bm25-lucene", results=results)

    [query] = movement.queries
    rank_a, rank_b = query.positives["a"]
    assert (query.score_a, rank_a) == (1.0, 1)
    assert (query.score_b, rank_b) == (1.0, 1)


def other_data(root: Path) -> Result:
    return store(root, "bm25", TASK, ranks(1, 1), data="0" * 64, differences=("50 documents",))


def test_data_that_is_not_published_has_no_rank_and_is_named(tmp_path: Path) -> None:
    other_data(tmp_path)

    board = leaderboard("demo", task=TASK, results=tmp_path)

    [row] = board.rows
    assert row.rank is None
    assert row.mean == 1.0
    assert f"{TASK} (not the published data)" in row.marks[0]
    assert board.to_json()["rows"][0]["is_published_data"] is False


def test_published_data_counts_before_newer_other_data(tmp_path: Path) -> None:
    store(tmp_path, "bm25", TASK, ranks(2, 2), created=OLD)
    store(
        tmp_path,
        "bm25",
        TASK,
        ranks(1, 1),
        data="0" * 64,
        differences=("50 documents",),
        created=NEW,
    )

    [row] = leaderboard("demo", task=TASK, results=tmp_path).rows

    assert row.rank == 1
    assert row.mean is not None and row.mean < 1


def test_exports_that_promise_the_published_data_refuse_other_data(tmp_path: Path) -> None:
    result = other_data(tmp_path)

    with pytest.raises(DataError, match="promise the published data"):
        export_mteb([result], tmp_path / "out")


def test_versions_of_one_name_are_ordered_by_tasks_then_age(tmp_path: Path) -> None:
    retrained(tmp_path)
    results = [r for r in ResultSet.open(tmp_path).results if r.label == "tiny"]

    [on_all] = group_systems(results, TASKS)
    [on_one] = group_systems(results, [TASK])

    assert on_all.chosen.created == OLD
    assert [version.created for version in on_all.newer] == [NEW]
    assert on_one.chosen.created == NEW
    assert on_one.newer == ()


def test_tables_name_data_that_is_not_the_published_one(tmp_path: Path) -> None:
    result = other_data(tmp_path)

    table = str(Evaluation([result]))
    [row] = Evaluation([result]).to_json()
    listed = str(list_results(tmp_path))

    assert f"not the published data of {TASK}" in " ".join(table.split())
    assert "50 documents" in row["data_note"]
    assert "not the published" in listed


def test_comparisons_and_gates_name_data_that_is_not_the_published_one(tmp_path: Path) -> None:
    other_data(tmp_path)
    store(
        tmp_path,
        "bm25-nano",
        TASK,
        ranks(2, 1),
        data="0" * 64,
        differences=("50 documents",),
    )

    comparison = compare("bm25", "bm25-nano", task=TASK, results=tmp_path)
    selection = ResultSet.open(tmp_path).select(["bm25", "bm25-nano"])
    [outcome] = Gate.parse("hit@1 below 1").check(selection)

    assert "(not the published data)" in str(comparison)
    assert "50 documents" in str(comparison)
    assert "50 documents" in comparison.to_json()["data_notes"][TASK]
    assert "50 documents" in comparison.to_arrow()["data_note"][0].as_py()
    power = compare_power(comparison)
    assert "(not the published data)" in str(power)
    assert "50 documents" in power.to_json()["data_notes"][TASK]
    assert outcome.scope == f"{TASK} (not the published data)"
    assert "50 documents" in outcome.to_json()["data_notes"][TASK]


def test_the_details_of_a_result_on_other_data_claim_no_comparable_figure(tmp_path: Path) -> None:
    def shown(result: Result) -> str:
        console = Console(file=io.StringIO(), width=200)
        console.print(report_scores.result_details(result))
        return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]

    data = find_task("Biology").data
    published = store(tmp_path / "a", "bm25", "Biology", ranks(1), data=data)
    other = store(tmp_path / "b", "bm25", "Biology", ranks(1), differences=("50 documents",))

    assert "no published figure" not in shown(published)
    assert "no published figure" in shown(other)
    assert "Biology (not the published data)" in shown(other)


def test_a_diagnosis_of_other_data_names_it(tmp_path: Path) -> None:
    write_r2med(tmp_path / "root" / "Biology")
    r2med.evaluate("bm25", "Biology", root=tmp_path / "root", results=tmp_path)

    root = tmp_path / "root"
    diagnosis = diagnose("bm25", "Biology", results=tmp_path, root=root)

    assert "Biology (not the published data)" in str(diagnosis)
    assert "documents 3 instead of 57,359" in diagnosis.to_json()["tasks"][0]["data_note"]


def test_a_long_list_shows_the_newest_results_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_scores, "_MOST_LISTED", 2)
    for number, system in enumerate(("bm25", "bm25-nano", "bm25-lucene"), start=1):
        store(tmp_path, system, TASK, ranks(1), created=f"2026-01-0{number}T00:00:00+00:00")

    listed = str(list_results(tmp_path))

    assert "bm25-nano" in listed and "bm25-lucene" in listed
    assert len(listed.split("bm25")) == 3
    assert "The newest 2 of 3 results" in listed


def test_pages_name_data_that_is_not_the_published_one(tmp_path: Path) -> None:
    other_data(tmp_path)
    snapshot = Library(tmp_path).snapshot()

    page = task_page(snapshot, server_link, TASK, metric="ndcg@10")

    assert "(not the published data)" in page
    assert "50 documents" in page


def test_a_metric_that_is_added_shows_in_the_explorer_at_once(tmp_path: Path) -> None:
    r2med.evaluate("bm25", TASK, results=tmp_path)
    library = Library(tmp_path)
    before = library.snapshot().board("demo", metric="recall@7", task=TASK)

    r2med.evaluate("bm25", TASK, results=tmp_path, metrics=["recall@7"])
    after = library.snapshot().board("demo", metric="recall@7", task=TASK)

    assert [row.values for row in before.rows] == [{}]
    assert list(after.rows[0].values) == [TASK]
