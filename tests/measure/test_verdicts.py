"""One rule decides which system is better, and one sentence says it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.measure.significance import SIGNIFICANT, Pair, compare_systems
from r2med.measure.verdicts import LOW_COVERAGE, Family, JudgedCoverage, Verdict, decide

PAIRS = Family(45, "all 45 pairs stored here")


def pair_of(*tasks: list[float]) -> Pair:
    """Systems A and B whose differences on each task are given."""
    scores = {
        f"task{index}": np.column_stack([np.array(task) / 2 + 0.5, 0.5 - np.array(task) / 2])
        for index, task in enumerate(tasks)
    }
    (pair,) = compare_systems(scores)
    return pair


def verdict_on(pair: Pair, **settings: object) -> Verdict:
    return decide(
        "A",
        "B",
        pair.by_task,
        tasks=pair.tasks,
        heterogeneity=pair.heterogeneity,
        **settings,  # type: ignore[arg-type]
    )


def test_a_single_pair_is_decided_by_its_own_p_value() -> None:
    verdict = verdict_on(pair_of([0.1, 0.2, 0.3, 0.2, 0.1, 0.2, 0.3, 0.2]))

    assert verdict.better == "A"
    assert verdict.sentence.startswith("A beats B by 20.0 points on task0 (+")
    assert "corrected" not in verdict.sentence


def test_the_sentence_shows_both_p_values_and_the_family() -> None:
    pair = pair_of([0.1, 0.2, 0.3, 0.2, 0.1, 0.2, 0.3, 0.2])
    verdict = verdict_on(pair, p_corrected=0.18, family=PAIRS)

    assert verdict.strength == "alone"
    assert verdict.better is None
    assert "p = .008 for this pair alone, .180 corrected over all 45 pairs" in verdict.sentence
    assert verdict.sentence.startswith("A is 20.0 points higher than B")
    assert verdict.sentence.endswith("), which is not significant after the correction.")
    assert "beats" not in verdict.text


@given(st.lists(st.floats(-0.9, 0.9), min_size=2, max_size=9), st.floats(0, 1))
def test_swapping_the_systems_swaps_the_verdict_and_keeps_its_words(
    differences: list[float], p_corrected: float
) -> None:
    there = verdict_on(pair_of(differences), p_corrected=p_corrected, family=PAIRS)
    back = decide(
        "B",
        "A",
        pair_of([-value for value in differences]).by_task,
        tasks=pair_of([-value for value in differences]).tasks,
        p_corrected=p_corrected,
        family=PAIRS,
    )

    assert there.better == back.better
    assert there.strength == back.strength
    if there.strength != "none":
        assert there.sentence == back.sentence


@given(st.lists(st.floats(-0.9, 0.9), min_size=2, max_size=9), st.floats(0, 1))
def test_only_the_corrected_p_value_makes_a_difference_significant(
    differences: list[float], p_corrected: float
) -> None:
    verdict = verdict_on(pair_of(differences), p_corrected=p_corrected, family=PAIRS)

    assert verdict.is_significant == (p_corrected < SIGNIFICANT and not verdict.is_tie)
    assert verdict.to_json()["p_corrected"] == p_corrected


def test_tasks_that_differ_the_other_way_are_named() -> None:
    up = [0.4, 0.5, 0.45, 0.5, 0.4, 0.5, 0.45, 0.5]
    down = [-0.2, -0.3, -0.25, -0.2, -0.2, -0.3, -0.25, -0.2]
    verdict = verdict_on(pair_of(up, up, down))

    assert verdict.better == "A"
    assert [task.task for task in verdict.opposing_tasks] == ["task2"]
    assert "on these 3 tasks" in verdict.sentence
    assert "B is better on task2 (23.8 points, p = .023)" in verdict.sentence
    assert any("I² = " in remark for remark in verdict.remarks)


def test_few_judged_documents_change_the_words_and_show_the_condensed_lists() -> None:
    pair = pair_of([0.1, 0.2, 0.3, 0.2, 0.1, 0.2, 0.3, 0.2])
    condensed = pair_of([0.1, -0.2, 0.1, 0.0, 0.1, -0.1, 0.0, 0.1]).by_task
    verdict = verdict_on(pair, coverage=JudgedCoverage(0.03, 0.5, condensed))

    assert "scores higher than B on the judged documents" in verdict.sentence
    assert "beats" not in verdict.sentence
    assert "Judged@10: A 3 %, B 50 %." in verdict.text
    assert "(condensed lists) A is 1.3 points higher (p = " in verdict.text


def test_few_judged_documents_and_no_significance_after_correction_are_both_said() -> None:
    pair = pair_of([0.1, 0.2, 0.3, 0.2, 0.1, 0.2, 0.3, 0.2])
    coverage = JudgedCoverage(0.03, 0.5)
    verdict = verdict_on(pair, p_corrected=0.18, family=PAIRS, coverage=coverage)

    assert "on the judged documents" in verdict.sentence
    assert verdict.sentence.endswith("), which is not significant after the correction.")


@pytest.mark.parametrize(("judged", "is_low"), [(LOW_COVERAGE, False), (0.0999, True)])
def test_coverage_is_low_below_the_stated_share(judged: float, is_low: bool) -> None:
    assert JudgedCoverage(judged, 1.0).is_low is JudgedCoverage(1.0, judged).is_low is is_low


def test_a_share_just_below_the_limit_is_not_rounded_to_it() -> None:
    pair = pair_of([0.1, 0.2, 0.3, 0.2, 0.1, 0.2, 0.3, 0.2])
    verdict = verdict_on(pair, coverage=JudgedCoverage(0.096, 0.104))

    assert "Judged@10: A 9.6 %, B 10 %. Below 10 %," in verdict.text


def test_equal_systems_have_the_same_mean() -> None:
    verdict = verdict_on(pair_of([0.0, 0.0, 0.0]))

    assert verdict.sentence == "A and B have the same mean on task0, 50.0."
    assert verdict.better is None


def test_queries_without_judgements_are_counted() -> None:
    pair = pair_of([0.1, 0.2])

    assert "3 queries have no judgements and are not scored." in verdict_on(pair, skipped=3).remarks
    assert "1 query has no judgements and is not scored." in verdict_on(pair, skipped=1).remarks
