"""The eval and results commands, as a user runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import r2med
from tests.cli.running import run
from tests.tasks.writing import Written, write_beir


def test_json_is_the_contract_and_nothing_else() -> None:
    done = run("eval", "bm25", "--task", "demo/biology,demo/medqa-diag", "--json")

    found = json.loads(done.out)
    assert done.code == 0
    assert [row["task"] for row in found] == ["demo/biology", "demo/medqa-diag"]
    assert list(found[0]) == [
        *("system", "spec", "task", "suite", "data", "data_note"),
        *("queries", "metrics", "seconds"),
        *("reused", "created", "result"),
    ]
    assert list(found[0]["metrics"]) == [
        *("ndcg@10", "map@10", "recall@100", "precision@10", "hit@10", "mrr")
    ]
    assert Path(found[0]["result"], "result.json").is_file()


def test_a_mean_counts_every_task_though_folders_share_a_name(tmp_path: Path) -> None:
    """One of them finds its document first, the other finds nothing: their mean is a half."""
    documents = (("d1", "fever and rash"), ("d2", "broken bone"))
    found = Written(documents, (("1", "fever rash"),), (("1", "d1", 1),))
    missed = Written(documents, (("1", "fever rash"),), (("1", "d2", 1),))
    folders = [
        write_beir(tmp_path / "a" / "own", found),
        write_beir(tmp_path / "b" / "own", missed),
    ]

    done = run("eval", "bm25", "--task", ",".join(f"{folder}#test" for folder in folders))

    rows = {line.split()[0]: line.split()[1] for line in done.out.splitlines() if "own#" in line}
    (mean,) = (line.split()[4] for line in done.out.splitlines() if "mean of 2 tasks" in line)
    values = [float(rows[name]) for name in ("own#test", "b/own#test")]
    assert values[0] > values[1]
    assert float(mean) == pytest.approx(sum(values) / 2, abs=0.01)


def test_a_stored_label_names_its_system_on_another_task() -> None:
    run("eval", "tri=bm25[k1=1.2] + bm25-nano", "--task", "demo/biology")

    done = run("eval", "tri", "--task", "demo/medqa-diag", "--json")

    [row] = json.loads(done.out)
    assert (row["system"], row["spec"]) == ("tri", "bm25[k1=1.2] + bm25-nano")


def test_groups_of_tasks_fit_eighty_columns_and_say_demo() -> None:
    done = run("eval", "bm25", "bm25-nano", "--task", "demo", "--by", "scenario")

    assert done.code == 0
    assert "demo suite" in done.out
    assert "mean of 8 tasks" in done.out
    assert max(len(line) for line in done.out.splitlines()) <= 80


def test_stars_say_which_tests_the_correction_covers() -> None:
    done = run("eval", "bm25", "bm25-lucene", "--task", "demo/medqa-diag,demo/pmc-treatment")

    shown = " ".join(done.out.split())
    assert re.search(r"\d\.\d\d\*", shown)
    assert "Holm's correction over all pairs of the systems in this column" in shown


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (("eval", "bm52"), 2, "'bm25'"),
        (("eval", "bm25["), 2, "expected an option"),
        (("eval", "bm25", "--task", "demo/bio"), 2, "demo/biology"),
        (("eval", "bm25", "--task", "./nowhere"), 2, "nowhere"),
        (("eval", "bm25", "--task", "Biology"), 1, "r2med fetch"),
        (("eval", "bm25", "--metrics", "ndgc@10"), 2, "ndcg@10"),
        (("eval", "bm25", "--by", "families"), 2, "'family'"),
        (("eval",), 2, "no system is given"),
        (("results", "export", "--out", "x"), 1, "no stored result"),
        (("evil",), 2, "evil"),
    ],
)
def test_bad_input_is_one_message_and_the_right_code(
    arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = run(*arguments)

    assert done.code == code
    assert message in done.err
    assert "Traceback" not in done.err


def test_stored_results_are_listed_and_exported(tmp_path: Path) -> None:
    run("eval", "bm25", "--task", "demo/biology")

    listed = run("results", "--json")
    exported = run("results", "export", "--to", "csv", "--out", str(tmp_path / "out"))

    assert json.loads(listed.out)[0]["task"] == "demo/biology"
    assert exported.code == 0
    assert (tmp_path / "out" / "scores.csv").is_file()


def test_titles_show_options_and_odd_names_as_they_are() -> None:
    done = run("eval", "bm25[k1=1.2]", "--task", "demo/biology")

    assert done.out.startswith("bm25[k1=1.2] · demo suite")
    assert done.code == 0


def test_a_suite_where_one_task_is_wanted_is_named_as_such() -> None:
    message = "'demo' is a suite; name one task of it."

    with pytest.raises(r2med.R2MedError, match=message):
        r2med.load_task("demo")


@pytest.mark.extra("light")
def test_verbose_shows_the_first_texts_as_the_model_saw_them() -> None:
    done = run("eval", "wordllama", "--task", "demo/biology", "--verbose")

    task = r2med.load_task("demo/biology")
    assert f"demo/biology · wordllama · first of {len(task.queries)} queries" in done.err
    assert f"demo/biology · wordllama · first of {len(task.corpus)} documents" in done.err
