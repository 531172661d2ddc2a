"""The expected calibration error on cases worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.agents.calibration import calibrate

SHARES = st.floats(0, 1, allow_nan=False)
ANSWERS = st.lists(st.tuples(SHARES, st.sampled_from([0.0, 1.0])), min_size=1, max_size=60)


def test_a_case_worked_out_by_hand() -> None:
    # Bin (0.8, 0.9]: 0.9, 0.9, 0.85, 0.85 with 2 of 4 correct: |0.875 - 0.5| = 0.375, weight 4/6.
    # Bin (0.2, 0.3]: 0.3 wrong: 0.3, weight 1/6. Bin (0.9, 1.0]: 1.0 correct: 0, weight 1/6.
    confidences = [0.9, 0.9, 0.85, 0.85, 0.3, 1.0]
    correct = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0]

    outcome = calibrate(confidences, correct)

    assert outcome is not None
    assert outcome.error == pytest.approx(4 / 6 * 0.375 + 1 / 6 * 0.3)
    assert outcome.overconfidence == pytest.approx(4.8 / 6 - 3 / 6)
    rows = [(b.low, b.high, b.answers, b.confidence, b.correct) for b in outcome.bins]
    assert rows == [
        pytest.approx((0.2, 0.3, 1, 0.3, 0.0)),
        pytest.approx((0.8, 0.9, 4, 0.875, 0.5)),
        pytest.approx((0.9, 1.0, 1, 1.0, 1.0)),
    ]


@pytest.mark.parametrize(
    ("confidence", "low"), [(0.0, 0.0), (0.1, 0.0), (0.100001, 0.1), (0.7, 0.6), (1.0, 0.9)]
)
def test_a_bin_holds_its_upper_bound(confidence: float, low: float) -> None:
    outcome = calibrate([confidence], [1.0])

    assert outcome is not None and outcome.bins[0].low == pytest.approx(low)


def test_there_is_no_calibration_without_stated_confidence() -> None:
    assert calibrate([], []) is None


@given(ANSWERS)
def test_the_error_is_between_the_bias_and_one(answers: list[tuple[float, float]]) -> None:
    outcome = calibrate([c for c, _ in answers], [k for _, k in answers])

    assert outcome is not None
    assert abs(outcome.overconfidence) - 1e-9 <= outcome.error <= 1
    assert sum(group.answers for group in outcome.bins) == len(answers)


@given(ANSWERS)
def test_one_bin_gives_the_absolute_bias(answers: list[tuple[float, float]]) -> None:
    outcome = calibrate([c for c, _ in answers], [k for _, k in answers], bins=1)

    assert outcome is not None and outcome.error == pytest.approx(abs(outcome.overconfidence))
