"""`r2med compare` on stored systems, folders and run files."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import r2med
from r2med.results.evaluation import Evaluation
from r2med.results.store import DEFAULT_FOLDER
from tests.cli.running import run


@pytest.fixture(scope="module")
def stored_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of three systems on two tasks; tests work on copies."""
    folder = tmp_path_factory.mktemp("evaluated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(folder / "home"))
        patch.chdir(folder)
        tasks = "demo/biology,demo/medqa-diag"
        done = run("eval", "bm25", "bm25-lucene", "bm25-nano", "--task", tasks)
    assert done.code == 0, done.err
    return folder / DEFAULT_FOLDER


@pytest.fixture
def evaluated(stored_results: Path) -> None:
    shutil.copytree(stored_results, DEFAULT_FOLDER)


@pytest.mark.usefixtures("evaluated")
def test_two_systems_are_compared_on_every_shared_task_and_pooled_twice() -> None:
    shown = run("compare", "bm25", "bm25-lucene")

    assert shown.code == 0
    for expected in ("MedQA-Diag", "task mean ", "all queries ", "Holm", "w/t/l", "Demo suite"):
        assert expected in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


def test_tasks_stand_in_the_order_of_their_suite_everywhere() -> None:
    run("eval", "bm25", "bm25-nano", "--task", "demo/medqa-diag,demo/bioinformatics,demo/biology")

    scores = str(Evaluation(r2med.list_results().results))
    shown = (run("compare", "bm25", "bm25-nano").out, scores)
    names = ["Biology", "Bioinformatics", "MedQA-Diag"]
    for text in shown:
        assert sorted(names, key=text.index) == names


@pytest.mark.usefixtures("evaluated")
def test_eighty_columns_do_without_the_t_test_before_the_number_of_queries() -> None:
    narrow = run("compare", "bm25", "bm25-lucene").out
    wide = run("compare", "bm25", "bm25-lucene", "--task", "demo/biology").out
    heading = narrow.splitlines()[3].split()

    assert "n" in heading and "t" not in heading
    assert " t: " not in narrow
    assert "t" in wide.splitlines()[3].split()
    assert " t: " in wide


@pytest.mark.usefixtures("evaluated")
def test_more_systems_make_a_matrix_that_mirrors_itself() -> None:
    shown = run("compare", "bm25", "bm25-lucene", "bm25-nano", "--json")

    told = json.loads(shown.out)

    assert [(pair["a"], pair["b"]) for pair in told["pairs"]] == [
        ("bm25", "bm25-lucene"),
        ("bm25", "bm25-nano"),
        ("bm25-lucene", "bm25-nano"),
    ]
    matrix = run("compare", "bm25", "bm25-lucene", "bm25-nano").out
    assert "row minus column" in matrix and "[3] bm25-nano" in matrix


@pytest.mark.usefixtures("evaluated")
def test_a_run_file_equals_the_result_it_was_exported_from() -> None:
    run("results", "export", "--system", "bm25", "--task", "demo/biology", "--out", "out")
    file = next(Path("out").glob("*/*.trec"))

    shown = run("compare", str(file), "bm25", "--task", "demo/biology", "--json")

    pooled = json.loads(shown.out)["pairs"][0]["pooled"]["task_mean"]
    assert (pooled["difference"], pooled["p_randomisation"], pooled["won"]) == (0.0, 1.0, 0)


@pytest.mark.usefixtures("evaluated")
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["bm25"], 2, "two systems or more"),
        (["bm25", "bm25"], 2, "given twice"),
        (["bm25", "bm25[k1=9]"], 1, "r2med eval 'bm25[k1=9]' --task"),
        (["bm25", "gone.trec"], 1, "gone.trec: no such run file"),
        (["bm25", "bm25-nano", "--metric", "ndcg@7"], 2, "--metrics ndcg@7"),
        (["bm25", "bm25-nano", "--task", "Biology"], 1, "has no stored result on Biology"),
    ],
)
def test_what_cannot_be_compared_says_what_to_do(
    arguments: list[str], code: int, told: str
) -> None:
    shown = run("compare", *arguments)

    assert (shown.code, shown.out) == (code, "")
    assert told in shown.err


@pytest.mark.usefixtures("evaluated")
def test_a_run_file_needs_its_task() -> None:
    Path("mine.trec").write_text("1 Q0 d1 1 2.0 mine\n")

    shown = run("compare", "mine.trec", "bm25")

    assert shown.code == 2
    assert "give exactly one with --task" in shown.err


@pytest.mark.usefixtures("evaluated")
def test_the_queries_that_moved_most_are_listed_in_80_columns() -> None:
    shown = run(
        "compare", "bm25", "bm25-lucene", "--task", "demo/medqa-diag", "--queries", "--limit", "2"
    )

    assert shown.code == 0, shown.err
    assert shown.out.count("\nquery ") == 2
    queries = len(r2med.load_task("demo/medqa-diag").queries)
    [moved] = re.findall(rf"A minus B: (\d+) of {queries} queries changed", shown.out)
    assert f"{int(moved) - 2} more queries changed" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


@pytest.mark.usefixtures("evaluated")
def test_all_queries_of_all_shared_tasks_are_in_the_json() -> None:
    told = json.loads(run("compare", "bm25", "bm25-lucene", "--queries", "--json").out)

    moved = [abs(query["difference"]) for query in told["queries"]]
    assert {each["task"] for each in told["queries"]} == {"demo/biology", "demo/medqa-diag"}
    assert len(moved) == sum(
        len(r2med.load_task(name).queries) for name in ("demo/biology", "demo/medqa-diag")
    )
    assert moved == sorted(moved, reverse=True)


@pytest.mark.usefixtures("evaluated")
def test_a_gate_fails_with_4_and_one_line_by_the_mean_of_the_tasks_in_common() -> None:
    new, old = (
        json.loads(run("compare", "bm25", "bm25-nano", "--json").out)["pairs"][0]["pooled"][
            "task_mean"
        ][side]
        for side in ("mean_a", "mean_b")
    )
    assert new < old
    drop = 100 * (old - new)

    failed = run("compare", "bm25", "bm25-nano", "--fail-if", f"ndcg@10 drops by {drop - 0.01}")
    passed = run("compare", "bm25", "bm25-nano", "--fail-if", f"ndcg@10 drops by {drop + 0.01}")
    risen = run("compare", "bm25-nano", "bm25", "--fail-if", "ndcg@10 drops by .01")

    assert (failed.code, failed.err) == (4, "")
    assert failed.out.startswith("failed: ndcg@10 drops by ")
    assert failed.out.count("\n") == 1 and "(mean of 2 tasks)" in failed.out
    assert (passed.code, risen.code) == (0, 0)


@pytest.mark.usefixtures("evaluated")
def test_every_condition_has_its_line_and_one_that_holds_suffices() -> None:
    conditions = ("ndcg@10 drops by 99", "map@10 drops by 0.001 points")

    shown = run("compare", "bm25", "bm25-nano", *(w for c in conditions for w in ("--fail-if", c)))

    assert shown.code == 4
    assert [line.split(":")[0] for line in shown.out.splitlines()] == ["passed", "failed"]


@pytest.mark.usefixtures("evaluated")
@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("ndcg@10 falls 1", "'ndcg@10 falls 1': this condition cannot be read. Expected 'METRIC"),
        ("ndcg@10 drops by 2 %", "cannot be read"),
        ("ndcg@10 drops by 0", "expected a number above 0"),
        ("ndgc@10 drops by 1", "Did you mean 'ndcg@10'"),
    ],
)
def test_a_condition_that_cannot_be_read_is_an_error(condition: str, told: str) -> None:
    shown = run("compare", "bm25-nano", "bm25", "--fail-if", condition)

    assert (shown.code, shown.out) == (2, "")
    assert told in shown.err


@pytest.mark.usefixtures("evaluated")
def test_verdicts_of_gates_are_data_too() -> None:
    shown = run("compare", "bm25-nano", "bm25", "--fail-if", "ndcg@10 drops by 99", "--json")

    [verdict] = json.loads(shown.out)
    assert (shown.code, verdict["failed"], verdict["new"]) == (0, False, "bm25-nano")
    assert verdict["condition"] == "ndcg@10 drops by 99" and verdict["over"] == "mean of 2 tasks"


@pytest.mark.usefixtures("evaluated")
@pytest.mark.parametrize(("order", "sign"), [("loss", -1), ("gain", 1)])
def test_queries_are_ordered_by_loss_or_gain_of_a(order: str, sign: int) -> None:
    shown = run("compare", "bm25", "bm25-lucene", "--queries", "--order", order, "--json")

    differences = [query["difference"] for query in json.loads(shown.out)["queries"]]
    assert differences == sorted(differences, reverse=sign > 0)
    assert sign * differences[0] > 0
