"""What judgements change: merging, condensed lists, bounds, order of systems, calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import nDCG
from scipy.stats import kendalltau

from r2med.errors import DataError, MissingError, UsageError
from r2med.judge.added import Source, add_judgements, choose_judgements, copy_to_equal_texts
from r2med.judge.calibration import calibrate, calibrate_set
from r2med.judge.effects import compare_orders, fill_holes, kendall_tau, report_effects
from r2med.judge.families import families_of, family_warnings
from r2med.judge.reporting import report_task
from r2med.judge.rubric import find_rubric
from r2med.judge.store import Pair
from r2med.measure.scores import measure
from tests.judge.making import GRADED, make_run, make_task, store_grades

DOCUMENTS = {name: f"text of {name}" for name in "abcdefgh"} | {"copy": "text of a"}
TASK = make_task(
    DOCUMENTS,
    {"1": "what about a", "2": "what about b"},
    {"1": {"a": 1, "b": 0}, "2": {"b": 1, "c": 1}},
)


def by_pair(judgements: Any) -> dict[Pair, int]:
    return {
        (query, document): score
        for query, scores in judgements.by_query().items()
        for document, score in scores.items()
    }


def test_the_benchmark_keeps_its_judgements_and_equal_texts_share_them() -> None:
    source = Source("judge", GRADED, {("1", "a"): 0, ("1", "c"): 3, ("2", "d"): 1})

    chosen = add_judgements(TASK, [source])

    assert by_pair(chosen.judgements) == {
        ("1", "a"): 1,
        ("1", "b"): 0,
        ("1", "c"): 1,
        ("1", "copy"): 1,
        ("2", "b"): 1,
        ("2", "c"): 1,
        ("2", "d"): 0,
    }
    assert copy_to_equal_texts(TASK) == {("1", "copy"): 1}
    assert (chosen.added, chosen.relevant, chosen.copied) == (3, 2, 1)
    assert "benchmark + judge: 3 added judgements, 2 relevant" in chosen.label


def test_people_come_before_judges_and_judges_vote() -> None:
    pair = ("1", "c")
    lenient = Source("x", GRADED, {pair: 3})
    strict = Source("y", GRADED, {pair: 0})
    people = Source("review", GRADED, {pair: 2})

    def score_with(*sources: Source) -> int:
        return by_pair(add_judgements(TASK, sources).judgements)[pair]

    assert score_with(lenient) == 1
    assert score_with(lenient, strict) == 0
    assert score_with(lenient, strict, Source("z", GRADED, {pair: 2})) == 1
    assert score_with(strict, people) == 1


def test_undecided_pairs_are_left_out_and_counted() -> None:
    source = Source("judge", find_rubric("reasoning"), {("1", "c"): 2, ("1", "d"): 3})

    chosen = add_judgements(TASK, [source])

    assert chosen.undecided == 1 and ("1", "c") not in by_pair(chosen.judgements)


def test_a_task_without_judgements_keeps_the_grades() -> None:
    task = make_task(DOCUMENTS, {"1": "what"}, {})

    chosen = add_judgements(task, [Source("judge", GRADED, {("1", "c"): 3, ("1", "d"): 1})])

    assert by_pair(chosen.judgements) == {("1", "c"): 3, ("1", "d"): 0}


def test_the_choice_of_judgements_is_resolved_by_name(tmp_path: Path) -> None:
    store_grades(tmp_path, TASK, "gpt", {("1", "c"): 3})
    store_grades(tmp_path, TASK, "other", {("1", "d"): 3})

    def added(choice: str) -> int:
        return choose_judgements(TASK, choice, tmp_path, warn=pytest.fail).added

    assert (added("benchmark"), added("gpt"), added("all")) == (0, 2, 3)
    with pytest.raises(MissingError, match="no judgement set 'gtp'"):
        added("gtp")
    with pytest.raises(MissingError, match="has no reviewed pair"):
        added("review")
    changed = make_task({**DOCUMENTS, "new": "text"}, {"1": "q"}, {})
    with pytest.raises(DataError, match="judged on other documents or queries"):
        choose_judgements(changed, "gpt", tmp_path, warn=pytest.fail)


@st.composite
def judged_lists(draw: st.DrawFn) -> tuple[dict[str, dict[str, int]], dict[str, list[str]]]:
    queries = ["1", "2", "3"]
    score = st.sampled_from([0, 1])
    qrels = {
        q: draw(st.dictionaries(st.sampled_from("abcdefgh"), score, min_size=1)) for q in queries
    }
    ranked = {q: draw(st.permutations("abcdefgh")) for q in queries}
    return qrels, {q: list(own)[: draw(st.integers(1, 8))] for q, own in ranked.items()}


@given(case=judged_lists())
def test_bounds_and_condensed_lists_equal_ir_measures(
    case: tuple[dict[str, dict[str, int]], dict[str, list[str]]],
) -> None:
    qrels, lists = case
    task = make_task(DOCUMENTS, dict.fromkeys(qrels, "what"), qrels)
    scored = {q: {d: -float(rank) for rank, d in enumerate(own)} for q, own in lists.items()}

    report = report_effects(task, {"s": make_run(lists)}, add_judgements(task, []), [])

    [effect] = report.systems
    for figure, measure_of, filled in (
        (effect.benchmark, nDCG @ 10, None),
        (effect.condensed, nDCG(judged_only=True) @ 10, None),
        (effect.holes_irrelevant, nDCG @ 10, 0),
        (effect.holes_relevant, nDCG @ 10, 1),
    ):
        judged = {q: dict(own) for q, own in qrels.items()}
        if filled is not None:
            for query, own in lists.items():
                for document in own[:10]:
                    judged[query].setdefault(document, filled)
        expected = ir_measures.calc_aggregate([measure_of], judged, scored)[measure_of]
        assert figure is not None
        assert figure.mean == pytest.approx(expected, abs=1e-9)


def test_bounds_by_hand() -> None:
    task = make_task(DOCUMENTS, {"1": "q"}, {"1": {"a": 1}})
    run = make_run({"1": ["b", "a"]})

    def ndcg(score: int) -> float:
        return float(measure(run, fill_holes(run, task, 10, score), ["ndcg@10"])["ndcg@10"][0])

    assert ndcg(0) == pytest.approx(1 / np.log2(3))
    assert ndcg(1) == pytest.approx(1.0)


@given(pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12))
def test_kendalls_tau_equals_scipy(pairs: list[tuple[int, int]]) -> None:
    first, second = (np.array(values, dtype=float) for values in zip(*pairs, strict=True))
    expected = kendalltau(first, second).statistic

    value = kendall_tau(first, second)

    if value is None:
        assert np.isnan(expected)
    else:
        assert value == pytest.approx(expected, abs=1e-9)


def test_pairs_of_systems_that_swap_are_named() -> None:
    columns = {
        "a": (np.array([0.5, 0.5]), np.array([0.5, 0.5])),
        "b": (np.array([0.4, 0.4]), np.array([0.9, 0.9])),
        "c": (np.array([0.1, 0.1]), np.array([0.2, 0.2])),
    }

    change = compare_orders(columns)

    assert change.swaps == (("a", "b"),)
    assert change.tau.value == pytest.approx(1 / 3)
    assert change.tau.value is not None and change.tau.interval is not None
    assert change.tau.value in change.tau.interval


def test_calibration_counts_the_judge_against_the_benchmark() -> None:
    grades = {("1", "a"): 3, ("1", "b"): 2, ("2", "b"): 0, ("2", "c"): 2, ("2", "d"): 3}
    known = {("1", "a"): True, ("1", "b"): False, ("2", "b"): True, ("2", "c"): True}

    calibration = calibrate("judge", grades, known, GRADED, TASK)

    assert calibration.pairs == 4 and calibration.undecided == 0
    assert calibration.by_grade == {0: (0, 1), 1: (0, 0), 2: (1, 1), 3: (0, 1)}
    assert calibration.detection.precision == pytest.approx(2 / 3)
    assert calibration.detection.recall == pytest.approx(2 / 3)
    assert {part.by for part in calibration.strata} == {
        "length of the passage",
        "words shared with the query",
    }
    for by in ("length of the passage", "words shared with the query"):
        parts = [part.detection.units for part in calibration.strata if part.by == by]
        assert sum(parts) == 4


def test_without_calibration_no_score_with_added_judgements_is_given(tmp_path: Path) -> None:
    runs = {"s": make_run({"1": ["c", "a"]}), "t": make_run({"1": ["a", "c"]})}
    store_grades(tmp_path, TASK, "uncalibrated", {("1", "c"): 3})
    store_grades(tmp_path, TASK, "calibrated", {("1", "c"): 3, ("1", "a"): 3})

    def report(choice: str) -> Any:
        return report_task(TASK, runs, choice, tmp_path, stored={}, warn=pytest.fail)

    without, with_sample = report("uncalibrated"), report("calibrated")

    assert [effect.added for effect in without.systems] == [None, None]
    assert without.order is None and "No score with added judgements" in str(without)
    assert all(effect.added is not None for effect in with_sample.systems)
    assert with_sample.to_json()["calibration"][0]["pairs"] == 1
    assert with_sample.to_arrow()["judgements"][0].as_py().startswith("benchmark + calibrated")
    with pytest.raises(UsageError, match="adds nothing"):
        report("benchmark")


def test_a_set_without_a_grade_does_not_hide_the_scores_of_others(tmp_path: Path) -> None:
    pairs = {("1", "c"): 3, ("1", "a"): 3, ("1", "b"): 0}
    store_grades(tmp_path, TASK, "good", pairs)
    store_grades(tmp_path, TASK, "interrupted", {})

    report = report_task(
        TASK, {"s": make_run({"1": ["c"]})}, "all", tmp_path, stored={}, warn=pytest.fail
    )

    assert report.choice.sources == ("good",) and report.systems[0].added is not None


def test_an_uncalibrated_judge_is_named(tmp_path: Path) -> None:
    store_grades(tmp_path, TASK, "good", {("1", "a"): 3, ("1", "b"): 0})
    store_grades(tmp_path, TASK, "unchecked", {("1", "c"): 3})

    report = report_task(
        TASK, {"s": make_run({"1": ["c"]})}, "all", tmp_path, stored={}, warn=pytest.fail
    )

    assert report.uncalibrated == ["unchecked"] and report.systems[0].added is None
    assert "unchecked was not calibrated" in " ".join(str(report).split())


def test_a_benchmark_of_positives_only_says_nothing_about_leniency() -> None:
    grades = {("1", "a"): 3, ("2", "b"): 0}
    chosen = add_judgements(TASK, [])

    calibration = calibrate("judge", grades, {("1", "a"): True, ("2", "b"): True}, GRADED, TASK)
    report = report_effects(TASK, {"s": make_run({"1": ["c"]})}, chosen, [calibration])

    assert calibration.detection.false_alarms is None
    assert "nothing tells whether it is lenient" in " ".join(str(report).split())


def test_a_set_is_calibrated_on_every_pair_that_the_benchmark_judged(tmp_path: Path) -> None:
    judged = store_grades(tmp_path, TASK, "x", {("1", "a"): 3, ("1", "b"): 3, ("1", "c"): 0})

    calibration = calibrate_set(judged, TASK)

    assert calibration.detection.confusion.tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize(
    ("name", "families"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", {"qwen"}),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", {"deepseek", "llama"}),
        ("gpt-4o-2024-11-20", {"openai"}),
        ("o3-mini", {"openai"}),
        ("nvidia/NV-Embed-v2", {"mistral"}),
        ("bm25", set()),
        ("my-model", set()),
    ],
)
def test_families_are_found_by_name(name: str, families: set[str]) -> None:
    assert families_of([name]) == families


def test_a_judge_of_a_systems_family_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    import r2med

    result = r2med.evaluate("bm25", "demo/biology")
    assert family_warnings(["qwen-7b"], {"bm25": result}) == []

    path = Path("families.toml")
    path.write_text('[families]\nlucene = ["bm25", "qwen"]\n')
    monkeypatch.setenv("R2MED_FAMILIES", str(path))

    [warning] = family_warnings(["qwen-7b"], {"bm25": result})
    path.write_text('[families]\nodd = ["("]\n')
    with pytest.raises(DataError, match="not a regular expression"):
        families_of(["bm25"])
    assert "one model family (lucene)" in warning
