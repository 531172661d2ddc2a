"""Is Nano faithful? Compare how systems rank on a full task and on its Nano form.

Both rankings are uncertain, so queries are drawn anew: those that both tasks have are drawn
together, because a query that is hard on one is hard on the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.stats import kendalltau, rankdata

from r2med.errors import DataError, MissingError
from r2med.measure.intervals import CONFIDENCE, RESAMPLES, SEED, Interval
from r2med.results.lookup import newest_by_system
from r2med.results.record import Result

Matrix = NDArray[np.float64]
#: With two systems every ranking agrees or is reversed, so nothing can be said.
LEAST_SYSTEMS = 3


@dataclass(frozen=True)
class Place:
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
    """Queries that both tasks have; the scores are means over these."""
    places: tuple[Place, ...]
    kendall: float
    kendall_interval: Interval
    spearman: float
    spearman_interval: Interval
    passed_over: tuple[str, ...] = ()
    """One sentence for each task that also has stored results on other data."""


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

    `results` are newest first. Of each task only results on the data of its newest result count,
    and of a system's several results the newest.
    """
    sides = [_on_one_data(results, task) for task in (full, nano)]
    systems = sorted(set(sides[0].results) & set(sides[1].results))
    _check(sides, systems, metric)
    scores = [[side.results[system].scores for system in systems] for side in sides]
    shared = scores[0][0].query_ids.sort()
    for each in (*scores[0], *scores[1]):
        shared = shared.filter(pc.is_in(shared, value_set=each.query_ids))
    if not len(shared):
        raise DataError(
            f"{full} and {nano} have no query in common, so one is no Nano form of the other."
        )
    matrices = [np.column_stack([each.at(shared)[metric] for each in side]) for side in scores]
    means = [matrix.mean(axis=0) for matrix in matrices]
    ranks = [rankdata(-mean) for mean in means]
    places = [
        Place(system, *(float(column[at]) for column in (*means, *ranks)))
        for at, system in enumerate(systems)
    ]
    kendalls, spearmans = _intervals(matrices, resamples, seed)
    return Fidelity(
        full,
        nano,
        metric,
        len(shared),
        tuple(sorted(places, key=lambda place: (place.full_rank, place.system))),
        kendall(*means),
        kendalls,
        spearman(*means),
        spearmans,
        tuple(side.note for side in sides if side.note),
    )


def kendall(a: Matrix, b: Matrix) -> float:
    """Kendall's tau-b; 0 where one ranking ties throughout and so says nothing."""
    value = float(kendalltau(a, b).statistic)
    return value if np.isfinite(value) else 0.0


def spearman(a: Matrix, b: Matrix) -> float:
    """Spearman's rho: the correlation of ranks, ties sharing theirs."""
    ranks_a, ranks_b = rankdata(a), rankdata(b)
    if not ranks_a.std() or not ranks_b.std():
        return 0.0
    return float(np.corrcoef(ranks_a, ranks_b)[0, 1])


@dataclass(frozen=True)
class _Side:
    """The newest result of each system on one task, all of them on the same data."""

    task: str
    results: Mapping[str, Result]
    note: str


def _on_one_data(results: Sequence[Result], task: str) -> _Side:
    own = [result for result in results if result.task == task]
    data = own[0].record.task.hash if own else ""
    same = [result for result in own if result.record.task.hash == data]
    notes: list[str] = []
    newest = newest_by_system(same, notes.append)
    if other := len(own) - len(same):
        notes.append(
            f"{task}: {other} stored {'result is' if other == 1 else 'results are'} on other data "
            f"than the newest ({data[:12]}) and not counted."
        )
    return _Side(task, newest, "\n".join(notes))


def _check(sides: Sequence[_Side], systems: Sequence[str], metric: str) -> None:
    if len(systems) < LEAST_SYSTEMS:
        stored = "\n".join(
            f"  {side.task}: {', '.join(sorted(side.results)) or 'no stored result'}"
            + (f"\n  {side.note}" if side.note else "")
            for side in sides
        )
        raise MissingError(
            f"{len(systems)} systems have stored results on both {sides[0].task} and "
            f"{sides[1].task}; a comparison of rankings needs {LEAST_SYSTEMS} or more.\n{stored}\n"
            "Run the same systems on both with `r2med eval`."
        )
    for side in sides:
        for system in systems:
            if metric not in side.results[system].scores:
                raise MissingError(
                    f"{system} on {side.task}: {metric} is not stored. Add it with "
                    f"`r2med eval ... --metrics {metric}`."
                )


def _intervals(matrices: Sequence[Matrix], resamples: int, seed: int) -> list[Interval]:
    """Of Kendall's tau and Spearman's rho, over queries drawn anew."""
    generator, size = np.random.default_rng(seed), len(matrices[0])
    draws = []
    for _ in range(resamples):
        rows = generator.integers(0, size, size)
        a, b = (matrix[rows].mean(axis=0) for matrix in matrices)
        draws.append((kendall(a, b), spearman(a, b)))
    tail = (1 - CONFIDENCE) / 2
    bounds = np.quantile(np.array(draws), [tail, 1 - tail], axis=0)
    return [Interval(float(low), float(high)) for low, high in bounds.T]
