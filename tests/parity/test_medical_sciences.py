"""The published nDCG@10 of e5 on the real Medical-Sciences, from its published run.

Set `R2MED_MEDICAL_SCIENCES` to a folder with `query.jsonl.gz`, `qrels.jsonl.gz` (R2MED's own) and
`e5_top100.trec.gz` (the run that ReasonRank published); the tests are skipped without it.
"""

from __future__ import annotations

import gzip
import json
import math
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


def test_another_score_would_come_out_if_repeated_documents_counted_twice() -> None:
    with gzip.open(FOLDER / "qrels.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    judged: dict[str, dict[str, int]] = {}
    for row in rows:
        judged.setdefault(str(row["q_id"]), {})[row["p_id"]] = int(row["score"])
    lists: dict[str, list[str]] = {}
    with gzip.open(FOLDER / "e5_top100.trec.gz", "rt") as file:
        for line in file:
            query, _, document, *_ = line.split()
            lists.setdefault(query, []).append(document)  # the file is in the order of ranks

    def discounted(gains: list[int]) -> float:
        return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains[:10], start=1))

    def mean(ranked: dict[str, list[str]]) -> float:
        scores = [
            discounted([gains.get(document, 0) for document in ranked.get(query, [])])
            / discounted(sorted(gains.values(), reverse=True))
            for query, gains in judged.items()
        ]
        return round(100 * sum(scores) / len(scores), 2)

    once = {query: list(dict.fromkeys(documents)) for query, documents in lists.items()}
    assert (mean(once), mean(lists)) == (41.01, 41.57)


def test_queries_and_judgements_are_the_published_files() -> None:
    checks = {
        check.fact: check for check in check_partial_files(find_task("Medical-Sciences"), FOLDER)
    }

    assert checks["query.jsonl"].passed and checks["qrels.jsonl"].passed
    assert checks["corpus.jsonl"].passed is None
