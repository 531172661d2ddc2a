"""Agreement between people, between judges, and between both.

All statistics are functions of count matrices, so their bootstrap intervals are computed for all
resamples at once. The code is written by hand because statsmodels, scikit-learn and krippendorff
together are large dependencies; the tests compare it with all three.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.errors import DataError
from r2med.measure.intervals import CONFIDENCE, SEED, Interval
from r2med.tables import Tabular, make_table

Weights = Literal["none", "linear", "quadratic"]
Level = Literal["nominal", "ordinal", "interval"]
Counts = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)

RESAMPLES = 2_000
_BLOCK = 200


@dataclass(frozen=True)
class Statistic:
    """A statistic with its bootstrap interval; each is None if the labels vary too little."""

    value: float | None
    interval: Interval | None = None


def count_pairs(
    first: Sequence[int], second: Sequence[int], categories: Sequence[int]
) -> NDArray[np.int64]:
    """Return the confusion matrix of two raters: rows are the first rater's labels."""
    size = len(categories)
    index = {label: position for position, label in enumerate(categories)}
    try:
        cells = [index[a] * size + index[b] for a, b in zip(first, second, strict=True)]
    except KeyError as problem:
        raise DataError(
            f"label {problem.args[0]!r} is not on the scale {list(categories)}."
        ) from None
    return np.bincount(np.array(cells, dtype=np.int64), minlength=size * size).reshape(size, size)


def percent_agreement(confusion: NDArray[Any]) -> float | None:
    """Return the share of units with equal labels; None without units."""
    return _none_if_nan(_agreement(np.asarray(confusion, dtype=np.float64)))


def cohen_kappa(confusion: NDArray[Any], *, weights: Weights = "none") -> float | None:
    """Return Cohen's kappa of a confusion matrix.

    Weights are distances between positions on the scale, as in scikit-learn. None where the
    disagreement expected by chance is 0, for example when both raters used one label only.
    """
    return _none_if_nan(_kappa(np.asarray(confusion, dtype=np.float64), weights))


def krippendorff_alpha(table: NDArray[Any], *, level: Level = "ordinal") -> float | None:
    """Return Krippendorff's alpha of a table of raters by units.

    Args:
        table: One row per rater, one column per unit; NaN where a rater gave no label.
        level: How distances between labels are measured.

    Returns:
        Alpha, or None if fewer than two units have two labels, or if all labels are equal.
    """
    coincidences, values = _unit_coincidences(np.asarray(table, dtype=np.float64))
    return _none_if_nan(_alpha(coincidences.sum(axis=0), values, level))


def kappa_interval(
    first: Sequence[int],
    second: Sequence[int],
    categories: Sequence[int],
    *,
    weights: Weights = "none",
) -> Statistic:
    """Return Cohen's kappa with its bootstrap interval over units."""
    confusion = count_pairs(first, second, categories).astype(np.float64)
    return _resample_confusion(confusion, lambda counts: _kappa(counts, weights))


def percent_interval(
    first: Sequence[int], second: Sequence[int], categories: Sequence[int]
) -> Statistic:
    """Return the share of equal labels with its bootstrap interval over units."""
    confusion = count_pairs(first, second, categories).astype(np.float64)
    return _resample_confusion(confusion, _agreement)


def alpha_interval(table: NDArray[Any], *, level: Level = "ordinal") -> Statistic:
    """Return Krippendorff's alpha with its bootstrap interval over units."""
    coincidences, values = _unit_coincidences(np.asarray(table, dtype=np.float64))
    units, size = len(coincidences), len(values)
    value = _none_if_nan(_alpha(coincidences.sum(axis=0), values, level))
    if value is None or units < 2:
        return Statistic(value)
    flat = coincidences.reshape(units, -1)
    generator = np.random.default_rng(SEED)
    samples = []
    for _ in range(0, RESAMPLES, _BLOCK):
        draws = generator.multinomial(units, np.full(units, 1 / units), size=_BLOCK)
        counts = (draws.astype(np.float64) @ flat).reshape(_BLOCK, size, size)
        samples.append(_alpha(counts, values, level))
    return Statistic(value, _percentiles(np.concatenate(samples)))


@dataclass(frozen=True)
class Detection:
    """How well one rater finds what another calls relevant: counts, precision and recall."""

    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int

    @property
    def precision(self) -> float | None:
        """Share of the pairs called relevant that are relevant."""
        called = self.true_positives + self.false_positives
        return self.true_positives / called if called else None

    @property
    def recall(self) -> float | None:
        """Share of the relevant pairs that were called relevant."""
        return self.true_positives / self.positives if self.positives else None

    @property
    def false_alarms(self) -> float | None:
        """The false positive rate: the share of the not relevant pairs that was called relevant."""
        return self.false_positives / self.negatives if self.negatives else None

    @property
    def positives(self) -> int:
        """Pairs that the reference calls relevant."""
        return self.true_positives + self.false_negatives

    @property
    def negatives(self) -> int:
        """Pairs that the reference calls not relevant."""
        return self.false_positives + self.true_negatives

    @property
    def units(self) -> int:
        """Pairs with both labels."""
        return self.positives + self.negatives

    @property
    def confusion(self) -> NDArray[np.int64]:
        """Rows are the rater's decisions (not relevant, relevant), columns the reference's."""
        return np.array(
            [
                [self.true_negatives, self.false_negatives],
                [self.false_positives, self.true_positives],
            ]
        )

    def precision_interval(self) -> Interval | None:
        """Wilson interval of the precision."""
        return _wilson(self.true_positives, self.true_positives + self.false_positives)

    def recall_interval(self) -> Interval | None:
        """Wilson interval of the recall."""
        return _wilson(self.true_positives, self.positives)


def detect(called: Sequence[bool], relevant: Sequence[bool]) -> Detection:
    """Compare a rater's decisions on relevance with a reference."""
    pairs = list(zip(called, relevant, strict=True))
    return Detection(
        true_positives=pairs.count((True, True)),
        false_positives=pairs.count((True, False)),
        false_negatives=pairs.count((False, True)),
        true_negatives=pairs.count((False, False)),
    )


@dataclass(frozen=True)
class RaterPair:
    """Agreement of two raters on the units that both labelled."""

    first: str
    second: str
    units: int
    percent: Statistic
    kappa: Statistic
    weighted_kappa: Statistic
    """Kappa with quadratic weights: a label one step away counts less than one three steps away."""


@dataclass(frozen=True, eq=False)
class AgreementTable(Tabular):
    """Agreement of all pairs of raters, and Krippendorff's alpha of all of them together."""

    raters: tuple[str, ...]
    units: int
    """Units with at least two labels."""
    alpha: Statistic
    pairs: tuple[RaterPair, ...]

    def to_arrow(self) -> pa.Table:
        """One row per pair of raters."""
        statistics = ("percent", "kappa", "weighted_kappa")
        numbers = [f"{name}{end}" for name in statistics for end in ("", "_low", "_high")]
        columns = {"first": str, "second": str, "units": int, **dict.fromkeys(numbers, float)}
        return make_table(columns, [self._row(pair, statistics) for pair in self.pairs])

    def to_json(self) -> dict[str, Any]:
        """All figures as JSON values."""
        return {
            "raters": list(self.raters),
            "units": self.units,
            "alpha": asdict(self.alpha),
            "pairs": [asdict(pair) for pair in self.pairs],
        }

    @staticmethod
    def _row(pair: RaterPair, statistics: Sequence[str]) -> dict[str, object]:
        row: dict[str, object] = {
            "first": pair.first,
            "second": pair.second,
            "units": pair.units,
        }
        for name in statistics:
            statistic: Statistic = getattr(pair, name)
            row[name] = statistic.value
            if statistic.interval is not None:
                row[f"{name}_low"] = statistic.interval.low
                row[f"{name}_high"] = statistic.interval.high
        return row


def measure_agreement(
    labels: Mapping[str, Mapping[Key, int]],
    categories: Sequence[int],
    *,
    level: Level = "ordinal",
) -> AgreementTable:
    """Compare the labels of all raters, people and judges alike.

    Args:
        labels: Labels by rater, then by unit; a unit that a rater skipped is left out.
        categories: The whole scale, in order.
        level: How alpha measures distances between labels.
    """
    units = list(dict.fromkeys(unit for rated in labels.values() for unit in rated))
    table = np.full((len(labels), len(units)), np.nan)
    for row, rated in enumerate(labels.values()):
        for column, unit in enumerate(units):
            if unit in rated:
                table[row, column] = rated[unit]
    pairs = []
    for (first, first_labels), (second, second_labels) in combinations(labels.items(), 2):
        shared = [unit for unit in first_labels if unit in second_labels]
        a = [first_labels[unit] for unit in shared]
        b = [second_labels[unit] for unit in shared]
        confusion = count_pairs(a, b, categories).astype(np.float64)
        pairs.append(
            RaterPair(
                first=first,
                second=second,
                units=len(shared),
                percent=_resample_confusion(confusion, _agreement),
                kappa=_resample_confusion(confusion, lambda counts: _kappa(counts, "none")),
                weighted_kappa=_resample_confusion(
                    confusion, lambda counts: _kappa(counts, "quadratic")
                ),
            )
        )
    paired = int((np.sum(~np.isnan(table), axis=0) >= 2).sum())
    alpha = alpha_interval(table, level=level)
    return AgreementTable(tuple(labels), paired, alpha, tuple(pairs))


def _agreement(counts: Counts) -> Counts:
    agreed = np.trace(counts, axis1=-2, axis2=-1)
    return _divide(agreed, counts.sum(axis=(-2, -1)))


def _kappa(counts: Counts, weights: Weights) -> Counts:
    """Return the kappa of each confusion matrix in a stack (leading axes); NaN if undefined."""
    positions = np.arange(counts.shape[-1])
    distances = np.abs(positions[:, None] - positions[None, :]).astype(np.float64)
    if weights == "none":
        distances = (distances > 0).astype(np.float64)
    elif weights == "quadratic":
        distances = distances**2
    total = counts.sum(axis=(-2, -1))
    rows, columns = counts.sum(axis=-1), counts.sum(axis=-2)
    observed = (counts * distances).sum(axis=(-2, -1)) * total
    expected = np.einsum("...i,...j,ij->...", rows, columns, distances)
    return 1.0 - _divide(observed, expected)


def _unit_coincidences(table: Counts) -> tuple[Counts, Counts]:
    """Return a coincidence matrix per unit with two or more labels, and the sorted label values."""
    if table.ndim != 2:
        raise DataError("agreement needs a table of raters by units.")
    values = np.unique(table[~np.isnan(table)])
    counts = (table[:, :, None] == values).sum(axis=0).astype(np.float64)
    labels = counts.sum(axis=1)
    counts, labels = counts[labels >= 2], labels[labels >= 2]
    coincidences = counts[:, :, None] * counts[:, None, :]
    diagonal = np.arange(len(values))
    coincidences[:, diagonal, diagonal] -= counts
    return coincidences / np.maximum(labels - 1, 1)[:, None, None], values


def _alpha(coincidences: Counts, values: Counts, level: Level) -> Counts:
    """Return the alpha of each coincidence matrix in a stack (leading axes); NaN if undefined."""
    totals = coincidences.sum(axis=-1)
    pairs = totals.sum(axis=-1)
    distances = _distances(totals, values, level)
    observed = (coincidences * distances).sum(axis=(-2, -1))
    products = totals[..., :, None] * totals[..., None, :]
    expected = (products * distances).sum(axis=(-2, -1))
    return 1.0 - _divide((pairs - 1.0) * observed, expected)


def _distances(totals: Counts, values: Counts, level: Level) -> Counts:
    """Return squared distances between labels; ordinal distances depend on label frequencies."""
    if level == "nominal":
        return np.asarray(values[:, None] != values[None, :], dtype=np.float64)
    if level == "interval":
        return np.asarray((values[:, None] - values[None, :]) ** 2)
    middles = np.cumsum(totals, axis=-1) - totals / 2
    return np.asarray((middles[..., :, None] - middles[..., None, :]) ** 2)


def _resample_confusion(confusion: Counts, statistic: Callable[[Counts], Counts]) -> Statistic:
    value, units = _none_if_nan(statistic(confusion)), int(confusion.sum())
    if value is None or units < 2:
        return Statistic(value)
    shares = confusion.ravel() / units
    draws = np.random.default_rng(SEED).multinomial(units, shares, size=RESAMPLES)
    samples = statistic(draws.reshape(-1, *confusion.shape).astype(np.float64))
    return Statistic(value, _percentiles(samples))


def _percentiles(samples: Counts) -> Interval | None:
    """Return the percentile interval of the resamples in which the statistic is defined."""
    defined = samples[~np.isnan(samples)]
    if not len(defined):
        return None
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(defined, [tail, 100 - tail])
    return Interval(float(low), float(high))


def _wilson(successes: int, trials: int) -> Interval | None:
    if not trials:
        return None
    z = 1.959963984540054
    share = successes / trials
    centre = share + z**2 / (2 * trials)
    reach = z * float(np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2)))
    scale = 1 + z**2 / trials
    return Interval(max(0.0, (centre - reach) / scale), min(1.0, (centre + reach) / scale))


def _divide(part: Counts, total: Counts) -> Counts:
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios: Counts = np.where(np.asarray(total) > 0, np.divide(part, total), np.nan)
    return ratios


def _none_if_nan(value: Counts) -> float | None:
    number = float(value)
    return None if np.isnan(number) else number
