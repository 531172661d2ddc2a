"""Effects of added judgements: scores with and without them, bounds, and the order of systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.errors import UsageError
from r2med.judge.added import REVIEW, ChosenJudgements
from r2med.judge.agreement import Statistic
from r2med.judge.calibration import Calibration
from r2med.measure.intervals import CONFIDENCE, SEED, TIE, Interval, mean_interval
from r2med.measure.metrics import Metric, parse_metric
from r2med.measure.scores import Scores, measure
from r2med.runs import Run
from r2med.tables import Tabular, make_table
from r2med.tasks.task import Judgements, Task

RESAMPLES = 2_000
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """A mean over queries with its interval."""

    mean: float
    interval: Interval


@dataclass(frozen=True)
class SystemEffect:
    """One system's scores, each with another treatment of its unjudged documents."""

    system: str
    judged: float
    """Share of the top documents that the benchmark has judged."""
    judged_with: float
    """Share of the top documents that the benchmark or added judgements have judged."""
    benchmark: Figure | None
    """Score with the benchmark's judgements. This and the next three scores are None if the task
    has no judgements.
    """
    condensed: Figure | None
    """Score on lists without unjudged documents; also None if the metric has no such form."""
    holes_irrelevant: Figure | None
    """Score if all unjudged documents were irrelevant."""
    holes_relevant: Figure | None
    """Score if all unjudged documents of this system were relevant."""
    added: Figure | None
    """Score with added judgements; None without a calibrated judge."""


@dataclass(frozen=True)
class OrderChange:
    """The change in the order of systems between two columns of scores."""

    tau: Statistic
    """Kendall's tau-b between the orders, with a bootstrap interval over queries."""
    swaps: tuple[tuple[str, str], ...]
    """Pairs whose order changes: the first system was ahead, the second is ahead now."""


@dataclass(frozen=True, eq=False)
class JudgeReport(Tabular):
    """Scores of systems with and without added judgements, and the judge's calibration."""

    task: str
    metric: str
    queries: int
    choice: ChosenJudgements
    systems: tuple[SystemEffect, ...]
    order: OrderChange | None
    calibrations: tuple[Calibration, ...]
    warnings: tuple[str, ...] = ()

    is_drawn = True

    @property
    def is_calibrated(self) -> bool:
        """Whether all judges are calibrated; otherwise scores with added judgements are hidden."""
        return not self.uncalibrated

    @property
    def uncalibrated(self) -> list[str]:
        """Names of the judges without a usable calibration."""
        return uncalibrated_judges(self.choice, self.calibrations)

    def to_arrow(self) -> pa.Table:
        """One row per system; values are from 0 to 1."""
        figures = ("benchmark", "condensed", "holes_irrelevant", "holes_relevant", "added")
        ends = [f"{name}{end}" for name in figures for end in ("", "_low", "_high")]
        columns = {
            "system": str,
            "task": str,
            "metric": str,
            "judgements": str,
            "judged": float,
            "judged_with": float,
            **dict.fromkeys(ends, float),
        }
        return make_table(columns, [self._row(effect, figures) for effect in self.systems])

    def to_json(self) -> dict[str, Any]:
        """All figures as JSON values."""
        return {
            "task": self.task,
            "metric": self.metric,
            "queries": self.queries,
            "judgements": self.choice.label,
            "added": self.choice.added,
            "relevant": self.choice.relevant,
            "undecided": self.choice.undecided,
            "systems": [asdict(effect) for effect in self.systems],
            "order": asdict(self.order) if self.order else None,
            "calibration": [calibration.to_json() for calibration in self.calibrations],
            "warnings": list(self.warnings),
        }

    def _row(self, effect: SystemEffect, figures: Sequence[str]) -> dict[str, object]:
        row: dict[str, object] = {
            "system": effect.system,
            "task": self.task,
            "metric": self.metric,
            "judgements": self.choice.label,
            "judged": effect.judged,
            "judged_with": effect.judged_with,
        }
        for name in figures:
            figure: Figure | None = getattr(effect, name)
            if figure is not None:
                row[name] = figure.mean
                row[f"{name}_low"], row[f"{name}_high"] = figure.interval.low, figure.interval.high
        return row


def report_effects(
    task: Task,
    runs: Mapping[str, Run],
    chosen: ChosenJudgements,
    calibrations: Sequence[Calibration],
    *,
    metric: str = "ndcg@10",
    warnings: Sequence[str] = (),
) -> JudgeReport:
    """Measure systems with and without added judgements.

    Args:
        task: The task with the benchmark's judgements.
        runs: Runs by system, with ties resolved in list order.
        chosen: Benchmark and added judgements.
        calibrations: One per judge whose judgements were added; without a usable one, scores with
            added judgements are left out.
        metric: A metric with a cutoff; unjudged documents are counted down to this cutoff.
        warnings: Warnings that are shown with the report.
    """
    parsed = parse_metric(metric)
    if parsed.cutoff is None:
        raise UsageError(f"--metric {metric}: give a cutoff, as in ndcg@10, to count holes.")
    queries = _measured_queries(task, chosen.judgements)
    may_show = not uncalibrated_judges(chosen, calibrations)
    has_benchmark = len(task.judgements) > 0
    columns: dict[str, tuple[Matrix, Matrix]] = {}
    effects = []
    for system, run in runs.items():
        after = _column(run, chosen.judgements, parsed, queries)
        if has_benchmark:
            columns[system] = (_column(run, task.judgements, parsed, queries), after)
        bounds = [
            _figure(_column(run, fill_holes(run, task, parsed.cutoff, score), parsed, queries))
            if has_benchmark
            else None
            for score in (0, 1)
        ]
        effects.append(
            SystemEffect(
                system=system,
                judged=_judged_share(run, task.judgements, parsed.cutoff, queries),
                judged_with=_judged_share(run, chosen.judgements, parsed.cutoff, queries),
                benchmark=_figure(columns[system][0]) if has_benchmark else None,
                condensed=_measure_condensed(run, task.judgements, parsed, queries),
                holes_irrelevant=bounds[0],
                holes_relevant=bounds[1],
                added=_figure(after) if may_show else None,
            )
        )
    order = compare_orders(columns) if may_show and len(columns) > 1 else None
    return JudgeReport(
        task=task.name,
        metric=metric,
        queries=len(queries),
        choice=chosen,
        systems=tuple(effects),
        order=order,
        calibrations=tuple(calibrations),
        warnings=tuple(warnings),
    )


def uncalibrated_judges(chosen: ChosenJudgements, calibrations: Sequence[Calibration]) -> list[str]:
    """Return the judges without a usable calibration; labels of people need none."""
    usable = {calibration.judge for calibration in calibrations if calibration.is_usable}
    return [name for name in chosen.sources if name not in usable and name != REVIEW]


def fill_holes(run: Run, task: Task, depth: int, score: int) -> Judgements:
    """Return a task's judgements, and `score` for unjudged documents in a run's top `depth`."""
    judged = task.judgements.by_query()
    queries, documents = [], []
    for query_id in judged:
        for document_id in run.ranked_documents(query_id)[:depth]:
            if document_id not in judged[query_id]:
                queries.append(query_id)
                documents.append(document_id)
    benchmark = task.judgements
    return Judgements(
        pa.concat_arrays([benchmark.query_ids, pa.array(queries, pa.large_string())]),
        pa.concat_arrays([benchmark.document_ids, pa.array(documents, pa.large_string())]),
        np.concatenate([benchmark.scores, np.full(len(queries), score, dtype=np.int32)]),
    )


def compare_orders(columns: Mapping[str, tuple[Matrix, Matrix]]) -> OrderChange:
    """Return how the order of systems changes from their first to their second score column.

    Both columns have the scores of the same queries.
    """
    names = list(columns)
    before = np.stack([columns[name][0] for name in names])
    after = np.stack([columns[name][1] for name in names])
    size = before.shape[1]
    value = kendall_tau(before.mean(axis=1), after.mean(axis=1))
    generator = np.random.default_rng(SEED)
    draws = generator.multinomial(size, np.full(size, 1 / size), size=RESAMPLES) / size
    samples = [kendall_tau(before @ draw, after @ draw) for draw in draws]
    defined = np.array([sample for sample in samples if sample is not None])
    interval = None
    if value is not None and len(defined):
        tail = 100 * (1 - CONFIDENCE) / 2
        low, high = np.percentile(defined, [tail, 100 - tail])
        interval = Interval(float(low), float(high))
    swaps = []
    for a, b in combinations(range(len(names)), 2):
        first = _sign(before[a].mean() - before[b].mean())
        second = _sign(after[a].mean() - after[b].mean())
        if first * second < 0:
            swaps.append((names[a], names[b]) if first > 0 else (names[b], names[a]))
    return OrderChange(Statistic(value, interval), tuple(swaps))


def kendall_tau(first: Matrix, second: Matrix) -> float | None:
    """Return Kendall's tau-b of two lists of values; None if all values of a list are equal."""
    a, b = np.triu_indices(len(first), k=1)
    signs = [_signs(values[a] - values[b]) for values in (first, second)]
    untied = np.sqrt(np.count_nonzero(signs[0]) * np.count_nonzero(signs[1]))
    return float(signs[0] @ signs[1] / untied) if untied else None


def _measured_queries(task: Task, judgements: Judgements) -> pa.Array:
    """Return the queries that the benchmark judged; if none, those with added judgements."""
    measured = task.judgements if len(task.judgements) else judgements
    return measured.query_ids.unique()


def _column(run: Run, judgements: Judgements, metric: Metric, queries: pa.Array) -> Matrix:
    return _scores(run, judgements, metric, queries)[str(metric)]


def _scores(run: Run, judgements: Judgements, metric: Metric, queries: pa.Array) -> Scores:
    return measure(run, judgements, [metric], ties="list").at(queries)


def _judged_share(run: Run, judgements: Judgements, cutoff: int, queries: pa.Array) -> float:
    if not len(judgements):
        return 0.0
    return float(_column(run, judgements, parse_metric(f"judged@{cutoff}"), queries).mean())


def _measure_condensed(
    run: Run, judgements: Judgements, metric: Metric, queries: pa.Array
) -> Figure | None:
    if not len(judgements):
        return None
    try:
        condensed = parse_metric(str(replace(metric, judged_only=True)))
    except UsageError:
        return None
    return _figure(_column(run, judgements, condensed, queries))


def _figure(column: Matrix) -> Figure:
    return Figure(float(column.mean()), mean_interval(column))


def _sign(difference: float) -> int:
    return 0 if abs(difference) <= TIE else int(np.sign(difference))


def _signs(differences: Matrix) -> Matrix:
    return np.where(np.abs(differences) <= TIE, 0.0, np.sign(differences))
