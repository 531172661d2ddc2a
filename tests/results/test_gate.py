"""A gate fails at the drop it names, and on significance only when a drop is significant."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.errors import UsageError
from r2med.results.compare import select_systems
from r2med.results.gates import Gate, GateOutcome
from r2med.systems.output import StageCost
from tests.results.storing import ranks, store

ROOT = Path("kept")


def check(condition: str, *systems: str) -> list[GateOutcome]:
    gate = Gate.parse(condition)
    selection = select_systems(
        *systems,
        task=None,
        metric=gate.metric,
        results=ROOT,
        root=None,
        tell=lambda message: None,
        least=2 if gate.needs_old else 1,
    )
    return gate.check(selection)


def judged(condition: str, *systems: str) -> bool:
    [outcome] = check(condition, *systems)
    return outcome.failed


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

    [outcome] = check("hit@1 drops significantly", "bm25-nano", "bm25")

    assert "p < .001 (" in str(outcome)


@pytest.mark.parametrize(("floor", "failed"), [("50", False), ("50.1", True)])
def test_a_floor_needs_no_second_system(floor: str, failed: bool) -> None:
    store(ROOT, "bm25", "demo/biology", ranks(1, 0))

    assert judged(f"hit@1 below {floor}", "bm25") is failed


def test_a_condition_on_any_task_is_decided_for_each() -> None:
    for task, second in (("demo/biology", 0), ("demo/medqa-diag", 1)):
        store(ROOT, "bm25", task, ranks(1, 1))
        store(ROOT, "bm25-nano", task, ranks(1, second))

    outcomes = check("hit@1 drops by 10 on any task", "bm25-nano", "bm25")

    failed = {outcome.scope: outcome.failed for outcome in outcomes}
    assert failed == {"demo/biology": True, "demo/medqa-diag": False}
    assert judged("hit@1 below 60 on demo/biology", "bm25-nano")
    assert not judged("hit@1 below 60 on demo/medqa-diag", "bm25-nano")


def test_latency_and_cost_are_held_to_limits() -> None:
    costs = (StageCost("bm25", "search", seconds=0.5, money=0.002),)
    store(ROOT, "bm25", "demo/biology", ranks(1, 1), costs=costs)
    [outcome] = check("latency above 1", "bm25")
    milliseconds = outcome.values["latency"]

    assert judged(f"latency above {milliseconds - 0.1:.6f}", "bm25")
    assert not judged(f"latency above {milliseconds + 0.1:.6f}", "bm25")
    [price] = check("cost above 1000", "bm25")
    assert price.values["cost"] == pytest.approx(milliseconds * 0.002 / 0.5)


def test_a_system_without_recorded_cost_does_not_pass_a_limit_on_cost() -> None:
    store(ROOT, "bm25", "demo/biology", ranks(1, 1))

    with pytest.raises(UsageError, match="no cost of bm25 is recorded"):
        check("cost above 5", "bm25")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("ndcg@10 falls", "cannot be read"),
        ("ndcg@10 drops by 0", "expected a number above 0"),
        ("ndcg@10 below", "expected a number above 0"),
        ("ndcg@10 drops significantly 3", "expected no number"),
        ("latency below 3", "'above' is for latency and cost"),
        ("ndcg@10 above 3", "'above' is for latency and cost"),
    ],
)
def test_a_condition_that_cannot_be_read_is_explained(condition: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Gate.parse(condition)


def test_a_gate_refuses_older_data_when_one_system_has_results_on_newer_data() -> None:
    for system in ("bm25", "bm25-nano"):
        store(ROOT, system, "ward", ranks(1), suite=None, data="yesterday")
    tonight = "2026-01-02T00:00:00+00:00"
    store(ROOT, "bm25-nano", "ward", ranks(0), suite=None, data="today", created=tonight)

    with pytest.raises(UsageError, match="bm25-nano has a newer result on ward, of data today"):
        judged("hit@1 drops by 1", "bm25-nano", "bm25")

    store(ROOT, "bm25", "ward", ranks(1), suite=None, data="today", created=tonight)

    assert judged("hit@1 drops by 1", "bm25-nano", "bm25")


def test_a_gate_refuses_an_older_version_when_a_newer_one_lacks_tasks() -> None:
    tonight = "2026-01-02T00:00:00+00:00"
    for task in ("demo/biology", "demo/medqa-diag"):
        store(ROOT, "dense:./tiny", task, ranks(1), identity={"checkpoint": "old"})
        store(ROOT, "bm25", task, ranks(1))
    new = {"checkpoint": "new"}
    store(ROOT, "dense:./tiny", "demo/biology", ranks(0), identity=new, created=tonight)

    for condition in ("hit@1 drops by 1", "hit@1 below 50", "hit@1 below 50 on demo/biology"):
        with pytest.raises(UsageError, match="has results on demo/biology only") as refused:
            judged(condition, "dense:./tiny", "bm25")
        assert "r2med eval dense:./tiny --task demo/medqa-diag" in str(refused.value)

    store(ROOT, "dense:./tiny", "demo/medqa-diag", ranks(0), identity=new, created=tonight)
    assert judged("hit@1 drops by 1", "dense:./tiny", "bm25")
