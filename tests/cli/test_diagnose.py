from __future__ import annotations

import json

import pyarrow.parquet as pq

from tests.cli.running import run

TASK = "demo/medqa-diag"


def evaluated(*systems: str) -> None:
    assert run("eval", *systems, "--task", TASK).code == 0


def test_diagnose_says_where_positives_stand_and_why() -> None:
    evaluated("bm25")

    done = run("diagnose", "bm25", "--task", TASK)

    assert done.code == 0, done.err
    assert "positives in the top 10: 36 of 54" in done.out
    assert "not among the 100 listed, where no reranker could help: 1" in done.out
    assert "few shared terms" in done.out
    assert "few shared terms" in done.out
    assert "(holes)" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_diagnose_as_data_has_one_row_per_positive() -> None:
    evaluated("bm25")

    done = run("diagnose", "bm25", "--task", TASK, "--json", "--out", "why.parquet")

    (told,) = json.loads(done.out)["tasks"]
    frame = pq.read_table("why.parquet")
    assert told["positives"] == len(frame) == 54
    assert sum(told["missed"].values()) == len(frame["cause"].drop_null()) == 18


def test_one_query_is_shown_with_its_evidence() -> None:
    evaluated("bm25")

    done = run("diagnose", "bm25", "--task", TASK, "--query", "1")

    assert done.code == 0, done.err
    assert "expected answer: Botulism" in done.out
    assert "rank " in done.out
    assert "of all documents share as much" in " ".join(done.out.split())


def test_diagnose_needs_a_stored_result_and_a_known_query() -> None:
    missing = run("diagnose", "bm25", "--task", TASK)
    evaluated("bm25")
    unknown = run("diagnose", "bm25", "--task", TASK, "--query", "x1")
    ending = run("diagnose", "bm25", "--task", TASK, "--out", "x.xlsx")

    assert (missing.code, unknown.code, ending.code) == (1, 2, 2)
    assert "r2med eval bm25" in missing.err
    assert "no such query" in unknown.err
    assert "expected a .parquet file" in ending.err
