"""Calibration of stated confidence: the expected calibration error.

Answers are grouped by stated confidence into bins of equal width. The error of a bin is the
distance between its mean confidence and its share of correct answers; the expected calibration
error is the mean over bins, weighted by their answers (Guo et al., 2017). BrowseComp-Plus uses bins
of 100 answers and the root of the mean square, so its figure is not comparable with this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BINS = 10


@dataclass(frozen=True)
class ConfidenceBin:
    """Answers whose confidence is above `low` and at most `high`; the first bin also holds 0."""

    low: float
    high: float
    answers: int
    confidence: float
    """Mean stated confidence."""
    correct: float
    """Mean correctness."""


@dataclass(frozen=True)
class ConfidenceCalibration:
    """How stated confidence compares with correctness."""

    answers: int
    """Answers that state a confidence and whose correctness is known."""
    error: float
    """Expected calibration error."""
    overconfidence: float
    """Mean confidence minus mean correctness."""
    bins: tuple[ConfidenceBin, ...]
    """Bins without answers are left out."""


def calibrate(
    confidences: Sequence[float], correct: Sequence[float], *, bins: int = BINS
) -> ConfidenceCalibration | None:
    """Compare stated confidences with correctness, both from 0 to 1; None without answers.

    Args:
        confidences: Stated confidence of each answer.
        correct: Correctness of each answer, in the same order.
        bins: Number of bins of equal width.
    """
    if len(confidences) != len(correct):
        raise ValueError(f"{len(confidences)} confidences and {len(correct)} answers")
    if not confidences:
        return None
    groups: dict[int, list[tuple[float, float]]] = {}
    for confidence, is_correct in zip(confidences, correct, strict=True):
        groups.setdefault(_bin_of(confidence, bins), []).append((confidence, is_correct))
    filled = tuple(_make_bin(index, bins, groups[index]) for index in sorted(groups))
    total = len(confidences)
    error = sum(group.answers * abs(group.confidence - group.correct) for group in filled) / total
    gap = (sum(confidences) - sum(correct)) / total
    return ConfidenceCalibration(total, error, gap, filled)


def _bin_of(confidence: float, bins: int) -> int:
    """Return the index of the first bin whose upper bound is at least the confidence."""
    bounds = ((index + 1) / bins for index in range(bins - 1))
    return next((index for index, bound in enumerate(bounds) if confidence <= bound), bins - 1)


def _make_bin(index: int, bins: int, answers: Sequence[tuple[float, float]]) -> ConfidenceBin:
    count = len(answers)
    return ConfidenceBin(
        index / bins,
        (index + 1) / bins,
        count,
        sum(confidence for confidence, _ in answers) / count,
        sum(is_correct for _, is_correct in answers) / count,
    )
