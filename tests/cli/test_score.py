"""A run file is measured against a judgements file, without a task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import run

RUN = "1 Q0 a 1 3.0 x\n1 Q0 b 2 2.0 x\n2 Q0 a 1 1.0 x\n4 Q0 a 1 1.0 x\n"
QRELS = "1 0 b 1\n2 0 a 1\n3 0 a 1\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "run.trec").write_text(RUN)
    (tmp_path / "qrels.txt").write_text(QRELS)
    return str(tmp_path / "run.trec"), str(tmp_path / "qrels.txt")


def test_a_run_file_has_the_scores_of_its_judged_queries(files: tuple[str, str]) -> None:
    done = run("score", *files, "--metrics", "mrr,ndcg@10", "--json")

    found = json.loads(done.out)
    assert found["metrics"]["mrr"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert found["metrics"]["ndcg@10"] == pytest.approx((0.6309297535714575 + 1) / 3)
    assert (found["queries"], found["missing_queries"], found["unjudged_queries"]) == (3, 1, 1)


def test_the_table_counts_what_is_not_scored(files: tuple[str, str]) -> None:
    done = run("score", *files)

    assert "1 judged query not in the run: scored 0." in done.out
    assert "1 query of the run without judgements: not scored." in done.out
    assert max(map(len, done.out.splitlines()[1:])) <= 80


def test_repeated_documents_are_refused_unless_a_line_is_chosen(tmp_path: Path) -> None:
    (tmp_path / "run.trec").write_text("1 Q0 a 1 3.0 x\n1 Q0 a 2 2.0 x\n1 Q0 b 3 1.0 x\n")
    (tmp_path / "qrels.txt").write_text("1 0 b 1\n")
    paths = str(tmp_path / "run.trec"), str(tmp_path / "qrels.txt")

    assert run("score", *paths).code != 0
    done = run("score", *paths, "--repeats", "first", "--metrics", "mrr", "--json")

    found = json.loads(done.out)
    assert found["metrics"]["mrr"] == pytest.approx(0.5)
    assert found["repeated_documents"] == 1
