"""Do intervals cover what they promise? Coverage on differences of real results, method by method.

    python bench/intervals.py DATA [--metric ndcg@10] [--trials 1000]

DATA holds nfcorpus and scifact in the R2MED layout. The differences of a pair of systems over all
queries of a collection are the population, their mean is the truth; samples of n queries are drawn
from it, and an interval of 95 % should hold the truth in 95 of 100.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import r2med
from r2med.measure.intervals import DIFFERENCES, mean_interval

SYSTEMS = (
    "bm25",
    "bm25-lucene",
    "bm25-nano",
    "bm25-lucene[b=0.75,k1=1.5]",
    "bm25[b=0.9]",
    "wordllama",
    "bm25 + wordllama",
    "bm25-lucene + wordllama",
)
SIZES = (13, 30, 100, 876)
RESAMPLES = 1000
Column = NDArray[np.float64]
Method = Callable[[Column, np.random.Generator], tuple[float, float]]


def ours(sample: Column, _: np.random.Generator) -> tuple[float, float]:
    interval = mean_interval(sample, span=DIFFERENCES)
    return interval.low, interval.high


def plain_t(sample: Column, _: np.random.Generator) -> tuple[float, float]:
    reach = stats.t.ppf(0.975, len(sample) - 1) * sample.std(ddof=1) / np.sqrt(len(sample))
    return float(sample.mean() - reach), float(sample.mean() + reach)


def percentiles(sample: Column, random: np.random.Generator) -> tuple[float, float]:
    drawn = sample[random.integers(0, len(sample), (RESAMPLES, len(sample)))].mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def studentised(sample: Column, random: np.random.Generator) -> tuple[float, float]:
    drawn = sample[random.integers(0, len(sample), (RESAMPLES, len(sample)))]
    errors = drawn.std(axis=1, ddof=1) / np.sqrt(len(sample))
    mean, error = sample.mean(), sample.std(ddof=1) / np.sqrt(len(sample))
    varied = errors > 0
    if not varied.any():
        return float(mean), float(mean)
    ratios = (drawn.mean(axis=1)[varied] - mean) / errors[varied]
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(mean - high * error), float(mean - low * error)


METHODS: dict[str, tuple[Method, float]] = {
    "ours": (ours, 1),
    "plain t": (plain_t, 1),
    "percentiles": (percentiles, 0.2),
    "studentised": (studentised, 0.2),
}
"""By name, the method and the share of the trials it is given, as drawing takes long."""


def populations(data: Path, metric: str) -> dict[str, Column]:
    """The differences of every pair of systems on every collection."""
    found = {}
    with tempfile.TemporaryDirectory() as results:
        for name in ("nfcorpus", "scifact"):
            task = r2med.load_task(data / name)
            columns = {
                system: r2med.evaluate(system, task, results=results).scores[metric]
                for system in SYSTEMS
            }
            for a, b in combinations(SYSTEMS, 2):
                found[f"{name}: {a} and {b}"] = columns[a] - columns[b]
    return {name: column for name, column in found.items() if np.ptp(column) > 0}


def coverage(
    population: Column, size: int, method: Method, trials: int, random: np.random.Generator
) -> float:
    """How often the interval of a sample holds the mean of the population."""
    truth, held = population.mean(), 0
    for sample in population[random.integers(0, len(population), (trials, size))]:
        low, high = method(sample, random)
        held += bool(low - 1e-12 <= truth <= high + 1e-12)
    return held / trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--metric", default="ndcg@10")
    parser.add_argument("--trials", type=int, default=1000)
    options = parser.parse_args()
    pairs = populations(options.data, options.metric)
    print(f"{options.metric}, {len(pairs)} pairs: mean coverage and worst pair, %")
    for size in SIZES:
        for name, (method, share) in METHODS.items():
            random = np.random.default_rng(size)
            trials = max(20, round(options.trials * share))
            covered = {
                pair: coverage(differences, size, method, trials, random)
                for pair, differences in pairs.items()
            }
            worst = min(covered, key=covered.__getitem__)
            mean = np.mean(list(covered.values()))
            print(f"{size:>4} {name:<12} {100 * mean:5.1f} {100 * covered[worst]:5.1f}  {worst}")


if __name__ == "__main__":
    main()
