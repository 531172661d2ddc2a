"""A gate fails at the drop it names, and on significance only when a drop is significant."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.errors import UsageError
from r2med.results.compare import Gate, compare, verdict_line
from tests.results.storing import ranks, store

ROOT = Path("kept")


def judged(condition: str, *systems: str) -> bool:
    gate = Gate.parse(condition)
    verdict = gate.verdict(compare(*systems, metric=gate.metric, results=ROOT))
    return bool(verdict["failed"])


@pytest.mark.parametrize(
    ("points", "failed"), [("9.9", True), ("10", True), ("10.1", False), (".5 points", True)]
)
def test_a_drop_of_exactly_the_points_named_fails(points: str, failed: bool) -> None:
    store(ROOT, "bm25", "demo/biology", ranks(*[1] * 10))
    store(ROOT, "bm25-nano", "demo/biology", ranks(*[1] * 9, 0))

    assert judged(f"hit@1 drops by {points}", "bm25-nano", "bm25") is failed
    assert not judged(f"hit@1 drops by {points}", "bm25", "bm25-nano")


def test_tasks_count_once_each_whatever_their_number_of_queries() -> None:
    for task, queries in (("demo/biology", 2), ("demo/medqa-diag", 20)):
        store(ROOT, "bm25", task, ranks(*[1] * queries))
    store(ROOT, "bm25-nano", "demo/biology", ranks(0, 0))
    store(ROOT, "bm25-nano", "demo/medqa-diag", ranks(*[1] * 20))

    assert judged("hit@1 drops by 50", "bm25-nano", "bm25")
    assert not judged("hit@1 drops by 50.1", "bm25-nano", "bm25")


@pytest.mark.parametrize(("lost", "failed"), [(4, False), (12, True)])
def test_a_significant_drop_is_one_that_the_randomisation_test_finds(
    lost: int, failed: bool
) -> None:
    store(ROOT, "bm25", "demo/biology", ranks(*[1] * 20))
    store(ROOT, "bm25-nano", "demo/biology", ranks(*[0] * lost, *[1] * (20 - lost)))

    assert judged("hit@1 drops significantly", "bm25-nano", "bm25") is failed
    assert not judged("hit@1 drops significantly", "bm25", "bm25-nano")


def test_a_gate_needs_a_new_and_an_old_system() -> None:
    for system in ("bm25", "bm25-nano", "bm25-lucene"):
        store(ROOT, system, "demo/biology", ranks(1))

    with pytest.raises(UsageError, match="two systems, NEW and OLD; 3 are given"):
        judged("ndcg@10 drops by 1", "bm25", "bm25-nano", "bm25-lucene")


def test_a_tiny_p_value_is_not_written_as_zero() -> None:
    store(ROOT, "bm25", "demo/biology", ranks(*[1] * 40))
    store(ROOT, "bm25-nano", "demo/biology", ranks(*[0] * 40))

    gate = Gate.parse("hit@1 drops significantly")
    verdict = gate.verdict(compare("bm25-nano", "bm25", metric="hit@1", results=ROOT))

    assert "p < .001 (" in verdict_line(verdict)
