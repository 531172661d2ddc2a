"""Our metrics against trec_eval's own code, over runs with ties, grades and gaps."""

from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.measure import measure
from r2med.runs import Run
from tests.building import judgements_of

CUTOFFS = (1, 3, 10, 100)
THEIRS = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P"}

documents = st.sampled_from([f"d{n}" for n in range(12)] + ["D1", "é9", "d 1", "z/1"])
scores = st.sampled_from([0.5, 0.500000001, 1.0, -2.0, 3.25, 0.0]) | st.floats(
    -1e3, 1e3, allow_nan=False, width=32
)
queries = st.sampled_from(["1", "2", "3", "q"])
runs = st.dictionaries(queries, st.dictionaries(documents, scores, min_size=1), min_size=1)
# trec_eval's code crashes on a query whose judgements are all negative.
grades = st.dictionaries(documents, st.integers(-2, 3), min_size=1).filter(
    lambda graded: max(graded.values()) >= 0
)
judged = st.dictionaries(queries, grades, min_size=1)


def trec_eval(
    run: dict[str, dict[str, float]], qrels: dict[str, dict[str, int]]
) -> dict[str, dict[str, float]]:
    wanted = {f"{theirs}.{k}" for theirs in THEIRS.values() for k in CUTOFFS} | {"recip_rank"}
    found: dict[str, dict[str, float]] = pytrec_eval.RelevanceEvaluator(qrels, wanted).evaluate(run)
    return found


@settings(max_examples=300, deadline=None)
@given(runs, judged)
def test_every_metric_equals_trec_eval(
    run: dict[str, dict[str, float]], qrels: dict[str, dict[str, int]]
) -> None:
    names = [f"{ours}@{k}" for ours in THEIRS for k in CUTOFFS] + ["mrr"]

    scores = measure(
        Run.from_lists({q: list(ranked.items()) for q, ranked in run.items()}),
        judgements_of(qrels),
        names,
    )

    expected = trec_eval(run, qrels)
    assert set(scores.query_ids.to_pylist()) == set(qrels)
    for row in scores.to_arrow().to_pylist():
        theirs = expected.get(row["query_id"])
        if theirs is None:
            assert all(row[name] == 0 for name in names)
            continue
        for ours, their_name in THEIRS.items():
            for k in CUTOFFS:
                assert row[f"{ours}@{k}"] == pytest.approx(theirs[f"{their_name}_{k}"], abs=1e-9)
        assert row["mrr"] == pytest.approx(theirs["recip_rank"], abs=1e-9)


def test_a_large_random_run_equals_trec_eval() -> None:
    random = np.random.default_rng(7)
    names = [f"doc{n}" for n in range(2000)]
    run = {
        str(q): dict(
            zip(
                random.choice(names, 100, replace=False).tolist(),
                random.integers(0, 40, 100).astype(float).tolist(),
                strict=True,
            )
        )
        for q in range(150)
    }
    qrels = {
        str(q): dict(
            zip(
                random.choice(names, 60, replace=False).tolist(),
                random.integers(0, 3, 60).tolist(),
                strict=True,
            )
        )
        for q in range(160)
    }

    scores = measure(
        Run.from_lists({q: list(ranked.items()) for q, ranked in run.items()}),
        judgements_of(qrels),
    )

    expected = trec_eval(run, qrels)
    for row in scores.to_arrow().to_pylist():
        theirs = expected.get(row["query_id"])
        want = theirs["ndcg_cut_10"] if theirs else 0.0
        assert row["ndcg@10"] == pytest.approx(want, abs=1e-9)
