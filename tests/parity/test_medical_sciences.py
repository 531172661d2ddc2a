"""The published nDCG@10 of e5 on the real Medical-Sciences, from its published run.

Set `R2MED_MEDICAL_SCIENCES` to a folder with `query.jsonl.gz`, `qrels.jsonl.gz` (R2MED's own) and
`e5_top100.trec.gz` (the run that ReasonRank published); the tests are skipped without it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from r2med.measure.run_scores import score_run_file
from r2med.tasks.partial import check_partial_files
from r2med.tasks.registry import find_task

FOLDER = Path(os.environ.get("R2MED_MEDICAL_SCIENCES", ""))
pytestmark = pytest.mark.skipif(
    "R2MED_MEDICAL_SCIENCES" not in os.environ,
    reason="set R2MED_MEDICAL_SCIENCES to a folder with the real queries, judgements and e5 run",
)


def test_the_published_score_comes_out_of_the_published_run() -> None:
    run, judgements = FOLDER / "e5_top100.trec.gz", FOLDER / "qrels.jsonl.gz"

    scores = score_run_file(run, judgements, ["ndcg@10"], repeats="first")

    assert round(100 * scores.means["ndcg@10"], 2) == 41.01
    assert (len(scores.scores), scores.repeated) == (88, 17)


def test_queries_and_judgements_are_the_published_files() -> None:
    checks = {
        check.fact: check for check in check_partial_files(find_task("Medical-Sciences"), FOLDER)
    }

    assert checks["query.jsonl"].passed and checks["qrels.jsonl"].passed
    assert checks["corpus.jsonl"].passed is None
