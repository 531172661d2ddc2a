"""Checking and importing the user's own data: all problems at once, and tables made into tasks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from r2med.errors import DataError, UsageError
from r2med.tasks.load import load_task
from r2med.tasks.own_data import check, import_tables
from tests.cli.running import run
from tests.tasks.writing import (
    LAYOUTS,
    Written,
    write_beir,
    write_lines,
    write_parquet,
    write_r2med,
    write_r2med_trec,
)


def faulty(folder: Path) -> Path:
    write_lines(
        folder / "corpus.jsonl",
        [
            {"id": "d1", "text": "one"},
            {"id": "d1", "text": "two"},
            {"id": "", "text": "x"},
            {"id": "d4", "text": ["a"]},
            "not json",
            {"id": "d6", "text": ""},
        ],
    )
    write_lines(folder / "query.jsonl", [{"id": 1, "text": "a"}, {"id": 1, "text": "b"}, {"id": 2}])
    judged = ["1 0 d1 1", "1 0 d1 2", "7 0 d1 1", "1 0 d99 1", "1 0 d1", "1 0 d1 x"]
    write_lines(folder / "qrels.txt", judged)
    return folder


def test_a_check_lists_every_problem_with_file_line_and_id(tmp_path: Path) -> None:
    folder = faulty(tmp_path / "bad")

    problems, _ = check(folder)

    found = [(Path(each.file).name, each.line, each.id, each.problem) for each in problems]
    assert found == [
        (
            "corpus.jsonl",
            2,
            "d1",
            f"this document id was already used in {folder / 'corpus.jsonl'}, line 1",
        ),
        ("corpus.jsonl", 3, "", 'field "id" is empty, expected a string or an integer.'),
        ("corpus.jsonl", 4, "d4", 'field "text" is a list, expected a string.'),
        ("corpus.jsonl", 5, None, "not valid JSON (Expecting value, column 1)."),
        ("corpus.jsonl", 6, "d6", "the document has no text"),
        (
            "query.jsonl",
            2,
            "1",
            f"this query id was already used in {folder / 'query.jsonl'}, line 1",
        ),
        ("query.jsonl", 3, "2", 'field "text" is missing (the line has "id").'),
        ("qrels.txt", 2, "1 d1", f"judged 2 here, but 1 in {folder / 'qrels.txt'}, line 1"),
        ("qrels.txt", 3, "7 d1", 'there is no query "7"'),
        ("qrels.txt", 5, None, "3 fields, expected 4."),
        ("qrels.txt", 6, "1", 'field "score" is the string "x", expected a whole number.'),
    ]


@pytest.mark.parametrize(
    ("second_document", "problems_of_judgements"),
    [
        ({"id": "d2", "text": "two"}, ['there is no document "d3"']),
        ({"id": "d2", "text": 2}, ['there is no document "d3"']),
        ('{"id": "d3" "text": "three"}', []),
    ],
)
def test_an_unknown_id_is_no_problem_if_a_line_that_cannot_be_read_may_have_it(
    second_document: dict[str, object] | str, problems_of_judgements: list[str], tmp_path: Path
) -> None:
    write_lines(tmp_path / "corpus.jsonl", [{"id": "d1", "text": "one"}, second_document])
    write_lines(tmp_path / "query.jsonl", [{"id": 1, "text": "a"}])
    write_lines(tmp_path / "qrels.txt", ["1 0 d1 1", "1 0 d3 1"])

    problems, _ = check(tmp_path)

    found = [problem.problem for problem in problems if problem.file.endswith("qrels.txt")]
    assert found == problems_of_judgements


def test_a_query_whose_positive_cannot_be_read_is_no_problem_of_its_own(tmp_path: Path) -> None:
    folder = write_r2med_trec(tmp_path, Written(judgements=(("1", "d1", 1), ("2", "d2", 0))))
    with (folder / "qrels.txt").open("a") as file:
        file.write("2\t0\td1\tone\n")

    problems, _ = check(folder)

    assert [problem.line for problem in problems] == [3]


def test_a_check_of_parquet_lists_every_problem_with_shard_row_and_id(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    write_parquet(corpus / "t-00000-of-00002.parquet", _id=["d1", "", "d2"], text=["x", "y", None])
    write_parquet(corpus / "t-00001-of-00002.parquet", _id=["d1", "d3"], text=["z", " "])
    write_parquet(tmp_path / "queries" / "t.parquet", _id=[1, 1, 2], title=["a", "b", "c"])
    scores = [1.0, 0.5, 1.0]
    pairs = {"query__id": ["1", "1", None], "corpus__id": ["d1", "d3", "d9"]}
    write_parquet(tmp_path / "qrels" / "t.parquet", **pairs, score=scores)

    problems, _ = check(tmp_path)

    first = f"{corpus / 't-00000-of-00002.parquet'}, row 1"
    assert [(Path(each.file).name, each.line, each.id, each.problem) for each in problems] == [
        ("t-00000-of-00002.parquet", 2, None, 'column "_id" is empty.'),
        ("t-00000-of-00002.parquet", 3, "d2", 'column "text" is null.'),
        ("t-00001-of-00002.parquet", 1, "d1", f"this document id was already used in {first}"),
        ("t-00001-of-00002.parquet", 2, "d3", "the document has no text"),
        ("t.parquet", None, None, 'column "text" is missing (the file has "_id", "title").'),
        ("t.parquet", 2, "1", 'column "score" is 0.5, expected a whole number.'),
        ("t.parquet", 3, None, 'column "query-id" is null.'),
    ]


def test_a_check_names_queries_that_no_system_can_answer(tmp_path: Path) -> None:
    folder = write_r2med(tmp_path, Written(judgements=(("1", "d1", 1), ("2", "d2", 0))))

    problems, task = check(folder)

    assert [(each.line, each.id, each.problem) for each in problems] == [
        (2, "2", "the query is judged, but has no positive")
    ]
    assert task is not None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_data_that_loads_as_it_is_has_no_problems(layout: str, tmp_path: Path) -> None:
    problems, task = check(LAYOUTS[layout](tmp_path / "data", Written()))

    assert problems == []
    assert task is not None and len(task.queries) == 2


def test_the_command_exits_with_1_on_problems_and_shows_the_data_without(tmp_path: Path) -> None:
    faulty(tmp_path / "all" / "bad")
    write_beir(tmp_path / "all" / "good")

    one = run("tasks", "check", str(tmp_path / "all"))
    good = run("tasks", "check", str(tmp_path / "all" / "good"))
    listed = json.loads(run("tasks", "check", str(tmp_path / "all"), "--json").out)

    assert one.code == 1 and "5 problems in" in one.out
    assert good.code == 0 and re.search(r"documents +3 ", good.out)
    assert len(listed) == 11 and set(listed[0]) == {"file", "line", "id", "problem"}


def tables(folder: Path, **changed: str) -> list[Path]:
    texts = {
        "corpus": 'DocNo,Title,body\nd1,Fever,"fever, and\nrash"\nd2,,broken bone\n',
        "queries": "id;question\n1;fever rash\n2;bone\n",
        "qrels": "query-id\tcorpus-id\tscore\n1\td1\t1\n2\td2\t2\n",
        **changed,
    }
    paths = [folder / f"{name}.{'tsv' if name == 'qrels' else 'csv'}" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def test_tables_become_a_task_by_usual_names_or_mapped_ones(tmp_path: Path) -> None:
    corpus, queries, qrels = tables(tmp_path)
    rows = import_tables(
        corpus, queries, qrels.rename(tmp_path / "qrels.csv.tsv"), out=tmp_path / "usual"
    )
    odd = tables(tmp_path, queries="nr,asked,text\n1,fever rash,x\n2,bone,y\n")
    columns = {"queries.id": "nr", "queries.text": "asked"}

    import_tables(*odd, out=tmp_path / "mapped", columns=columns)

    task = load_task(tmp_path / "usual")
    assert rows == (2, 2, 2)
    assert task.corpus.texts.to_pylist() == ["Fever fever, and\nrash", "broken bone"]
    assert list(task.queries.items()) == [("1", "fever rash"), ("2", "bone")]
    assert task.judgements.by_query() == {"1": {"d1": 1}, "2": {"d2": 2}}
    assert load_task(tmp_path / "mapped").hash == task.hash


@pytest.mark.parametrize(
    ("changed", "kind", "why"),
    [
        ({"corpus": "nr,body\n1,x\n"}, UsageError, "--column corpus.id=NAME"),
        ({"corpus": 'id,text\n1,a\n2,"b\n3,c\n'}, DataError, "line 3: unexpected end of data"),
        ({"corpus": '"id,text\n1,a\n'}, DataError, "line 1: unexpected end of data"),
        ({"queries": ""}, DataError, "is empty, expected a line of column names"),
        ({"queries": "id,text\n1,x\n2\n"}, DataError, "line 3: 1 cell, expected 2"),
        ({"qrels": "qid\tpid\trel\n1\td1\tx\n\td1\t1\n"}, DataError, "expected a whole number"),
        ({"qrels": "qid\tpid\trel\n1\td1\t1\n\td1\t1\n"}, DataError, 'line 3: column "qid" is'),
    ],
)
def test_wrong_tables_write_nothing_and_say_what_is_wrong(
    changed: dict[str, str], kind: type[Exception], why: str, tmp_path: Path
) -> None:
    with pytest.raises(kind) as problem:
        import_tables(*tables(tmp_path, **changed), out=tmp_path / "out")

    assert why in str(problem.value)
    assert not (tmp_path / "out").exists()


def test_all_that_is_wrong_with_the_rows_of_an_import_is_said_at_once(tmp_path: Path) -> None:
    wrong = {"corpus": "id,text\n,a\nd1\n", "qrels": "qid\tpid\trel\n1\td1\tx\n"}

    with pytest.raises(DataError) as problem:
        import_tables(*tables(tmp_path, **wrong), out=tmp_path / "out")

    lines = str(problem.value).splitlines()
    assert [line.partition(", ")[2] for line in lines] == [
        'line 2: column "id" is empty.',
        "line 3: 1 cell, expected 2.",
        "line 2: the score is 'x', expected a whole number.",
    ]
    assert not (tmp_path / "out").exists()


def test_all_columns_that_an_import_misses_are_named_at_once(tmp_path: Path) -> None:
    odd = {"corpus": "nr,body\n1,x\n", "queries": "nr,text\n1,x\n", "qrels": "qid\tnr\n1\t1\n"}

    with pytest.raises(UsageError) as problem:
        import_tables(*tables(tmp_path, **odd), out=tmp_path / "out")

    wanted = ("corpus.id", "queries.id", "qrels.document")
    assert " ".join(f"--column {name}=NAME" for name in wanted) in str(problem.value)


def test_a_mapped_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"qrels\.score: it has query-id, corpus-id, score, exp"):
        import_tables(*tables(tmp_path), out=tmp_path / "out", columns={"qrels.score": "grade"})


def test_judgements_whose_score_is_not_recognised_are_not_called_positive_silently(
    tmp_path: Path,
) -> None:
    files = [str(path) for path in tables(tmp_path, qrels="qid\tpid\tusefulness\n1\td1\t0\n")]

    done = run("tasks", "import", *files, "--out", str(tmp_path / "mine"))

    assert "every judgement counts as 1. It has qid, pid, usefulness" in done.err


def test_an_import_is_ready_to_be_evaluated(tmp_path: Path) -> None:
    files = [str(path) for path in tables(tmp_path)]
    out = str(tmp_path / "mine")

    done = run("tasks", "import", *files, "--out", out)
    again = run("tasks", "import", *files, "--out", out)
    wrong = run("tasks", "import", *files, "--out", out, "--force", "--column", "corpus.txt=body")

    assert done.code == 0 and f"r2med eval bm25 --task {out}" in done.out
    assert f"wrote {out}: 2 documents, 2 queries, 2 judgements" in done.out
    assert again.code == 2 and "nothing was changed" in again.err
    assert wrong.code == 2 and "'corpus.text'" in wrong.err
    assert "100.00" in run("eval", "bm25", "--task", out).out


def test_folders_of_one_name_keep_names_of_their_own_between_commands(tmp_path: Path) -> None:
    first = write_r2med(tmp_path / "a" / "data")
    second = write_r2med(
        tmp_path / "b" / "data", Written(judgements=(("1", "d2", 1), ("2", "d1", 1)))
    )

    run("eval", "bm25", "--task", str(first))
    run("eval", "bm25", "bm25-nano", "--task", str(second))
    run("eval", "bm25-nano", "--task", str(first))
    rows = json.loads(run("results", "--json").out)

    named = sorted((row["task"], row["system"]) for row in rows)
    assert named == [
        *(("b/data", system) for system in ("bm25", "bm25-nano")),
        *(("data", system) for system in ("bm25", "bm25-nano")),
    ]
    for task in ("data", "b/data", str(first), str(second)):
        assert len(json.loads(run("results", "--task", task, "--json").out)) == 2
    assert run("compare", "bm25", "bm25-nano", "--task", "data,b/data", "--queries").code == 0
    assert run("diagnose", "bm25", "--task", "data,b/data").code == 0
    assert json.loads(run("eval", "bm25", "--task", "b/data", "--json").out)[0]["task"] == "b/data"


@pytest.mark.extra("plots")
def test_own_data_has_a_leaderboard_plots_and_cards(tmp_path: Path) -> None:
    first = write_r2med(tmp_path / "all" / "one")
    second = write_beir(tmp_path / "all" / "two", Written(judgements=(("1", "d2", 1),)))
    run("eval", "mine=bm25", "bm25-nano", "--task", str(tmp_path / "all"))

    board = json.loads(run("leaderboard", "--suite", "local", "--json").out)
    part = json.loads(run("leaderboard", "--task", "two", "--json").out)
    drawn = run("plot", "heatmap", "--task", f"one,{second}", "--out", "map.svg")
    cards = run("tasks", "card", str(first), "two", "--out", "cards", "--dense", "none")
    mixed = run("leaderboard", "--task", f"{first},demo")
    parted = run("eval", "bm25", "--task", str(first), str(second))

    assert [task["name"] for task in board["tasks"]] == ["one", "two"]
    assert {row["label"] or row["system"] for row in board["rows"]} == {"mine", "bm25-nano"}
    assert all(row["rank"] and row["interval"] and not row["marks"] for row in board["rows"])
    assert [task["name"] for task in part["tasks"]] == ["two"]
    assert drawn.code == 0 and "mine" in Path("map.svg").read_text()
    assert cards.code == 0 and Path("cards", "two.md").is_file()
    assert mixed.code == 2 and "one suite at a time" in mixed.err
    assert parted.code == 2 and "tasks are given with --task, separated by commas" in parted.err
