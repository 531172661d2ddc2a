"""Statistical power of paired comparisons, from simulations of the randomisation test.

The simulated test is the one that comparisons use.

New samples are drawn with replacement, within each task, from the observed differences after
removing their mean. A true difference is then added to every query, and the test is applied; half
of the samples have it in favour of one system, half in favour of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from r2med.measure.intervals import SEED, TIE, Averaging, Column, estimate, variance
from r2med.measure.significance import SIGNIFICANT

#: The usual power of a planned comparison (Cohen 1988).
POWER = 0.80
#: Simulated samples, and signs drawn for the test of each of them.
_SAMPLES, _DRAWS = 4000, 999
#: Draws that are counted together: few enough for the processor's cache.
_BLOCK_DRAWS = 16
#: For more queries the normal approximation is exact enough.
_MOST_SIMULATED = 300
_STEPS = 4


@dataclass(frozen=True, eq=False)
class _Simulation:
    """Samples under the null hypothesis, to which a true difference can be added."""

    observed: Column
    """The weighted sum of differences of each sample."""
    drawn: NDArray[np.float32]
    """The weighted sum of differences with flipped signs, by draw of signs and by sample."""
    shares: Column
    """For each draw of signs, the weighted sum that a true difference of 1 adds to `drawn`. The
    same difference adds 1 to `observed`."""

    def power_at(self, difference: float) -> float:
        """The share of samples in which the test detects a true difference, in either direction.

        The test detects a difference more easily in one direction if a sample is skewed. The mean
        of both directions does not depend on which system is named first.
        """
        return (self._share_found(difference) + self._share_found(-difference)) / 2

    def _share_found(self, difference: float) -> float:
        observed = np.abs(self.observed + difference)
        added = np.float32(difference) * self.shares[:, None]
        extreme = np.zeros(len(observed), dtype=np.int64)
        for start in range(0, len(self.drawn), _BLOCK_DRAWS):
            block = slice(start, start + _BLOCK_DRAWS)
            extreme += np.count_nonzero(
                np.abs(self.drawn[block] + added[block]) >= observed, axis=0
            )
        p_values = (extreme + 1) / (len(self.drawn) + 1)
        return float((p_values < SIGNIFICANT).mean())


def power_of(tasks: Sequence[Column], difference: float, by: Averaging = "task") -> float:
    """The probability that the test finds a true difference of this size, in either direction.

    Args:
        tasks: Observed paired differences, one column per task.
        difference: The true difference of the means, 0 to 1.
        by: Whether every task or every query counts once.
    """
    return _simulate(tasks, by).power_at(difference)


def detectable_difference(
    tasks: Sequence[Column], by: Averaging = "task", *, power: float = POWER
) -> float | None:
    """The smallest true difference that the test finds with this power.

    None if no difference of two scores is large enough, or if the columns do not vary.
    """
    if not any(variance(task) for task in tasks):
        return None
    simulation = _simulate(tasks, by)
    difference = _normal_sum(power) * _standard_error(tasks, by)
    for _ in range(_STEPS):
        difference *= _normal_sum(power) / _normal_sum(simulation.power_at(difference))
    return difference if difference <= 1 else None


def queries_needed(
    tasks: Sequence[Column], difference: float, by: Averaging = "task", *, power: float = POWER
) -> int | None:
    """Return the number of queries that the test needs to detect a difference with this power.

    The tasks keep their shares of the queries.

    The number comes from the normal approximation; a small one is corrected by a simulation.
    """
    if difference <= TIE or not any(variance(task) for task in tasks):
        return None
    error = _standard_error(tasks, by)
    factor = (_normal_sum(power) * error / difference) ** 2
    sizes = _scale_sizes(tasks, factor)
    if sum(sizes) <= _MOST_SIMULATED:
        reached = _simulate(tasks, by, sizes=sizes).power_at(difference)
        factor *= (_normal_sum(power) / _normal_sum(reached)) ** 2
    return sum(_scale_sizes(tasks, factor))


def _standard_error(tasks: Sequence[Column], by: Averaging) -> float:
    return estimate(tasks, by, freedom_of=lambda task: max(len(task) - 1, 1)).error


def _scale_sizes(tasks: Sequence[Column], factor: float) -> list[int]:
    return [max(1, int(np.ceil(len(task) * factor))) for task in tasks]


def _normal_sum(power: float) -> float:
    """The difference, in standard errors, that a two-sided normal test finds with this power."""
    from scipy.special import ndtri

    return float(-ndtri(SIGNIFICANT / 2) + ndtri(np.clip(power, 0.1, 0.999)))


def _simulate(
    tasks: Sequence[Column], by: Averaging, *, sizes: Sequence[int] | None = None
) -> _Simulation:
    sizes = sizes or [len(task) for task in tasks]
    generator = np.random.default_rng(SEED)
    observed = np.zeros(_SAMPLES)
    drawn = np.zeros((_DRAWS, _SAMPLES), dtype=np.float32)
    shares = np.zeros(_DRAWS)
    for task, size in zip(tasks, sizes, strict=True):
        weight = 1 / (len(tasks) * size) if by == "task" else 1 / sum(sizes)
        unbiased = np.sqrt(len(task) / max(len(task) - 1, 1))
        centered = (unbiased * (task - task.mean())).astype(np.float32)
        picked = generator.integers(0, len(task), size=(size, _SAMPLES))
        samples = weight * centered[picked]
        signs = 1 - 2 * generator.integers(0, 2, size=(_DRAWS, size)).astype(np.float32)
        observed += samples.sum(axis=0)
        drawn += signs @ samples
        shares += weight * signs.sum(axis=1)
    return _Simulation(observed, drawn, shares)
