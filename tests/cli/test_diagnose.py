from __future__ import annotations

import json

import pyarrow.parquet as pq

import r2med
from r2med.tasks.task import positives_of
from tests.cli.running import run

TASK = "demo/medqa-diag"


def evaluated(*systems: str) -> None:
    assert run("eval", *systems, "--task", TASK).code == 0


def ranks_of_positives(system: str) -> list[int | None]:
    """The rank of every positive in the run of a system, None where it is not listed."""
    task = r2med.load_task(TASK)
    ranking = r2med.evaluate(system, task).run
    return [
        ranking.ranks_of(query).get(document)
        for query, documents in positives_of(task.judgements).items()
        for document in documents
    ]


def test_diagnose_says_where_positives_stand_and_why() -> None:
    system = "bm25@50"
    evaluated(system)

    done = run("diagnose", system, "--task", TASK)

    ranks = ranks_of_positives(system)
    found = sum(rank is not None and rank <= 10 for rank in ranks)
    unlisted = ranks.count(None)
    assert done.code == 0, done.err
    assert f"positives in the top 10: {found} of {len(ranks)}\n" in done.out
    assert 0 < unlisted < len(ranks) - found
    assert (
        f"missed: {len(ranks) - found}, of them not among the 50 listed, "
        f"where no reranker could help: {unlisted}\n" in done.out
    )
    assert "few shared terms" in done.out
    assert "(holes)" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_diagnose_as_data_has_one_row_per_positive() -> None:
    evaluated("bm25")

    done = run("diagnose", "bm25", "--task", TASK, "--json", "--out", "why.parquet")

    (told,) = json.loads(done.out)["tasks"]
    frame = pq.read_table("why.parquet")
    ranks = ranks_of_positives("bm25")
    missed = sum(rank is None or rank > 10 for rank in ranks)
    assert missed > 0
    assert told["positives"] == len(frame) == len(ranks)
    assert sum(told["missed"].values()) == len(frame["cause"].drop_null()) == missed


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
