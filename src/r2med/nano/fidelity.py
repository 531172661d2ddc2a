"""Is Nano faithful? Compare how systems rank on a full task and on its Nano form.

Both rankings are uncertain, so their intervals come from resampled queries. A resampled query is
used for both tasks, because a query that is hard in one is hard in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.stats import kendalltau, rankdata

from r2med.errors import DataError, MissingError, plural
from r2med.measure.intervals import CONFIDENCE, RESAMPLES, SEED, Interval
from r2med.results.record import Result
from r2med.results.versions import describe_versions, group_systems

Matrix = NDArray[np.float64]
#: With two systems every ranking agrees or is reversed, so nothing can be said.
LEAST_SYSTEMS = 3


@dataclass(frozen=True)
class SystemRanks:
    """One system's score and rank (1 is best) on both tasks."""

    system: str
    full: float
    nano: float
    full_rank: float
    nano_rank: float


@dataclass(frozen=True)
class Fidelity:
    """Agreement of the two rankings, from -1 (reversed) to 1 (the same)."""

    full: str
    nano: str
    metric: str
    queries: int
    """Number of queries that both tasks have; the scores are means over these."""
    systems: tuple[SystemRanks, ...]
    kendall: float
    kendall_interval: Interval
    spearman: float
    spearman_interval: Interval
    passed_over: tuple[str, ...] = ()
    """Notices about stored results of a task that are not compared, such as those on other data."""


def fidelity(
    full: str,
    nano: str,
    results: Sequence[Result],
    *,
    metric: str = "ndcg@10",
    resamples: int = RESAMPLES // 10,
    seed: int = SEED,
) -> Fidelity:
    """Compare the rankings of all systems that have a stored result on both tasks.

    `results` are ordered newest first. For each task, only results on the same data as the newest
    result count; if a system has several of these, the newest counts.
    """
    sides, notes = {}, []
    for task in (full, nano):
        sides[task], note = _on_one_data(results, task)
        notes += note
    systems = sorted(sides[full].keys() & sides[nano].keys())
    if len(systems) < LEAST_SYSTEMS:
        stored = [
            f"  {task}: {', '.join(sorted(side)) or 'no stored result'}"
            for task, side in sides.items()
        ]
        raise MissingError(
            f"{len(systems)} systems have stored results on both {full} and {nano}; a comparison "
            f"of rankings needs {LEAST_SYSTEMS} or more.\n"
            + "\n".join([*stored, *notes, "Run the same systems on both with `r2med eval`."])
        )
    for task, side in sides.items():
        for system in systems:
            if metric not in side[system].scores:
                raise MissingError(
                    f"{system} on {task}: {metric} is not stored. Add it with "
                    f"`r2med eval ... --metrics {quote(metric)}`."
                )
    scores = [[sides[task][system].scores for system in systems] for task in (full, nano)]
    shared = scores[0][0].query_ids.sort()
    for column in (*scores[0], *scores[1]):
        shared = shared.filter(pc.is_in(shared, value_set=column.query_ids))
    if not len(shared):
        raise DataError(
            f"{full} and {nano} have no query in common, so they are not a task and its Nano form."
        )
    matrices = [np.column_stack([column.at(shared)[metric] for column in side]) for side in scores]
    means = [matrix.mean(axis=0) for matrix in matrices]
    ranks = [rankdata(-mean) for mean in means]
    rows = [
        SystemRanks(system, *(float(column[at]) for column in (*means, *ranks)))
        for at, system in enumerate(systems)
    ]
    kendalls, spearmans = _intervals(matrices, resamples, seed)
    return Fidelity(
        full,
        nano,
        metric,
        len(shared),
        tuple(sorted(rows, key=lambda row: (row.full_rank, row.system))),
        kendall(*means),
        kendalls,
        spearman(*means),
        spearmans,
        tuple(notes),
    )


def kendall(a: Matrix, b: Matrix) -> float:
    """Return Kendall's tau-b; 0 if all systems of one ranking are tied."""
    value = float(kendalltau(a, b).statistic)
    return value if np.isfinite(value) else 0.0


def spearman(a: Matrix, b: Matrix) -> float:
    """Return Spearman's rho: the correlation of ranks, with mean ranks for ties."""
    ranks_a, ranks_b = rankdata(a), rankdata(b)
    if not ranks_a.std() or not ranks_b.std():
        return 0.0
    return float(np.corrcoef(ranks_a, ranks_b)[0, 1])


def _on_one_data(results: Sequence[Result], task: str) -> tuple[dict[str, Result], list[str]]:
    """Return the results on the newest data of a task, by spec, and notices about other results.

    `results` are ordered newest first.
    """
    on_task = [result for result in results if result.task == task]
    data = on_task[0].data if on_task else ""
    same_data = [result for result in on_task if result.data == data]
    chosen: dict[str, Result] = {}
    notes: list[str] = []
    for system in group_systems(same_data, [task]):
        chosen.setdefault(system.spec, system.chosen.results[0])
        notes += describe_versions(system)
    if older := len(on_task) - len(same_data):
        which = f"{plural(older, 'stored result')} on other data than the newest ({data[:12]})"
        notes.append(f"{task}: {which} not counted.")
    return chosen, notes


def _intervals(matrices: Sequence[Matrix], resamples: int, seed: int) -> list[Interval]:
    """Return the intervals of Kendall's tau and Spearman's rho over resampled queries."""
    generator, size = np.random.default_rng(seed), len(matrices[0])
    draws = []
    for _ in range(resamples):
        rows = generator.integers(0, size, size)
        a, b = (matrix[rows].mean(axis=0) for matrix in matrices)
        draws.append((kendall(a, b), spearman(a, b)))
    tail = (1 - CONFIDENCE) / 2
    bounds = np.quantile(np.array(draws), [tail, 1 - tail], axis=0)
    return [Interval(float(low), float(high)) for low, high in bounds.T]
