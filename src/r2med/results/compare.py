"""Is one system really better? Stored systems and run files, compared over the same queries.

Sides meet only on the same data of a task and the same judged queries; anything else is an error
that says what to run. Differences are A minus B everywhere. A `Gate` such as `ndcg@10 drops by 1`
makes a comparison a check for continuous integration.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations, islice
from pathlib import Path
from shlex import join, quote
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa

from r2med.errors import DataError, MissingError, UsageError
from r2med.measure import Scores, measure, parse_metric
from r2med.measure.significance import SIGNIFICANT, Difference, Pair, compare_systems, p_equation
from r2med.results.lookup import file_run, find_named, own_tasks, stored_results, tell_versions
from r2med.results.record import RUN_FILE, Result
from r2med.results.store import DEFAULT_FOLDER
from r2med.retrieve.conditions import Tell, log
from r2med.tabular import Tabular, fields_of, table_of
from r2med.tasks.load import load_tasks, task_names
from r2med.tasks.registry import grouped, in_suite_order, resolve

_FORM = re.compile(r"(\S+) drops (?:by (\d+(?:\.\d+)?|\.\d+)(?: points?)?|(significantly))")
#: Points that are only rounding.
_ROUNDING = 1e-9


def compare(
    *systems: str | Path | Result,
    task: str | None = None,
    metric: str = "ndcg@10",
    results: str | Path | Sequence[Result] = DEFAULT_FOLDER,
    root: str | Path | None = None,
    resamples: int | None = None,
    tell: Tell = log,
) -> Comparison:
    """Compare systems query by query, per task and pooled, every pair of them.

    A system is a `Result`, a run file, the folder of a stored result, or a text as in `evaluate`
    that has results stored in `results`. Without `task` all tasks that the systems share are
    compared; a run file does not say its task, and takes judgements as `load_task(root=...)` does.
    """
    if len(systems) < 2:
        raise UsageError("two systems or more are needed, e.g. r2med compare bm25 bm25-lucene.")
    name = str(parse_metric(metric))
    own, stored = own_tasks(results), stored_results(results, tell)
    folder = Path(results) if isinstance(results, str | Path) else Path("the results given")

    def trial_of(file: Path) -> _FileTrial:
        loaded = list(islice(load_tasks(task, root=root, own=own), 2)) if task else []
        if len(loaded) != 1:
            raise UsageError(
                f"{file} is a run file, which does not say its task: give exactly one with --task."
            )
        scores = measure(file_run(file, loaded[0], tell), loaded[0].judgements, [name])
        return _FileTrial(str(file), loaded[0].name, loaded[0].suite, loaded[0].hash, scores)

    sides: list[_Side] = []
    for each in systems:
        if isinstance(each, Result):
            sides.append((each.name, [each]))
        else:
            named = find_named(str(each), stored, folder)
            sides.append((named.name, [trial_of(named.file)] if named.file else named.results))
    wanted = task_names(resolve(task, own), own) if task else _common_tasks(sides)
    by_task = {each: _same_data(sides, each) for each in in_suite_order(wanted)}
    chosen = list(zip(*by_task.values(), strict=True))
    for one, other in combinations(range(len(sides)), 2):
        if [_run(each) for each in chosen[one]] == [_run(each) for each in chosen[other]]:
            raise UsageError(
                f"compare: the same result is given twice: {systems[one]} and {systems[other]} "
                f"are {_run(chosen[one][0])[0]}."
            )
    for (_, trials), taken in zip(sides, chosen, strict=True):
        kept = [each for each in trials if isinstance(each, Result)]
        groups = [[r for r in kept if (r.task, r.data) == (t.task, t.data)] for t in taken]
        tell_versions(groups, tell)
    suites = {trial.suite for taken in chosen for trial in taken}
    if len(suites) > 1:
        kinds = " and ".join(sorted(suite or "your data" for suite in suites))
        raise UsageError(
            f"the systems have results of {kinds} in common, which are never pooled. "
            "Choose with --task, e.g. --task demo."
        )
    without = [each.name for taken in chosen for each in taken if name not in each.scores]
    if without:
        again = list(dict.fromkeys(without))
        raise UsageError(
            f"{name} is not stored for {' and '.join(again)}.\n"
            f"Add it: r2med eval {join(again)} --task {quote(','.join(grouped(wanted)))} "
            f"--metrics {name}"
        )
    count = Counter(side for side, _ in sides)
    names = tuple(
        f"{side} ({trials[0].key})" if count[side] > 1 and isinstance(trials[0], Result) else side
        for side, trials in sides
    )
    tasks = {each: query_scores(trials, name) for each, trials in by_task.items()}
    return Comparison(names, name, suites.pop(), tasks, resamples)


@dataclass(frozen=True)
class QueryScores:
    """One query under several systems; scores are in the order of the systems."""

    query_id: str
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Low where the query is hard for all."""
        return fmean(self.scores)

    @property
    def division(self) -> float:
        """The best score minus the worst."""
        return max(self.scores) - min(self.scores)

    @property
    def gain(self) -> float:
        """The first system's score minus the second's; 0 where there is one."""
        return self.scores[0] - self.scores[1] if len(self.scores) > 1 else 0.0


def query_scores(results: Sequence[Result | _FileTrial], metric: str) -> list[QueryScores]:
    """The judged queries that all results scored, in the first one's order.

    The results are of one task's same data.
    """
    tables = [each.scores.by_query(metric) for each in results]
    return [
        QueryScores(query, tuple(table[query] for table in tables))
        for query in (tables[0] if tables else {})
        if all(query in table for table in tables)
    ]


@dataclass(frozen=True, eq=False)
class Comparison(Tabular):
    """Systems over the same queries; `pairs` refer to `systems` by their places."""

    drawn_by = "r2med.report.comparison"

    systems: tuple[str, ...]
    metric: str
    suite: str | None
    """The suite of all tasks; None for data of the user's own."""
    tasks: Mapping[str, Sequence[QueryScores]]
    resamples: int | None = None

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Every pair of systems, tested."""
        scores = {
            task: np.array([query.scores for query in queries])
            for task, queries in self.tasks.items()
        }
        return tuple(compare_systems(scores, resamples=self.resamples))

    @property
    def means(self) -> list[float]:
        """The mean of every system, each task counting once."""
        others = [pair.by_task.mean_b for pair in self.pairs if pair.a == 0]
        return [self.pairs[0].by_task.mean_a, *others]

    @property
    def matrix(self) -> dict[tuple[int, int], tuple[float, float]]:
        """By row and column the row minus the column, and its p-value corrected over all pairs."""
        return {
            place: (sign * pair.by_task.difference, pair.p_holm)
            for pair in self.pairs
            for place, sign in (((pair.a, pair.b), 1), ((pair.b, pair.a), -1))
        }

    def to_arrow(self) -> pa.Table:
        """One row per pair and task, and for several tasks one per pair and kind of mean.

        `p_holm` is corrected over the tasks of a pair, of the task mean over the pairs.
        """
        names = dict.fromkeys(("a", "b", "over"), str)
        columns = names | fields_of(Difference) | dict.fromkeys(("low", "high", "p_holm"), float)
        rows = []
        for pair in self.pairs:
            for line in pair.lines:
                own = line.difference
                row = {"a": self.systems[pair.a], "b": self.systems[pair.b], "over": line.task}
                p_holm = pair.p_holm if own is pair.by_task else line.p_holm
                rows.append({**row, **vars(own), **vars(own.interval), "p_holm": p_holm})
        return table_of(columns, rows)

    def to_json(self) -> dict[str, Any]:
        """Everything, scores and differences 0 to 1."""
        return {
            "metric": self.metric,
            "systems": list(self.systems),
            "pairs": [
                {
                    "a": self.systems[pair.a],
                    "b": self.systems[pair.b],
                    "p_holm": pair.p_holm,
                    "tasks": [
                        {"task": each.task, **asdict(each.difference), "p_holm": each.p_holm}
                        for each in pair.tasks
                    ],
                    "pooled": {
                        "task_mean": asdict(pair.by_task),
                        "query_weighted": asdict(pair.by_query),
                    },
                }
                for pair in self.pairs
            ],
        }


@dataclass(frozen=True, eq=False)
class _FileTrial:
    """The scores of a run file, with what a `Result` says of itself."""

    name: str
    task: str
    suite: str | None
    data: str
    scores: Scores


_Side = tuple[str, Sequence[Result | _FileTrial]]
"""The name of a system and its trials, newest first."""


def _run(trial: Result | _FileTrial) -> tuple[str, str]:
    """What two names of one run share; a user's class may have changed under one key."""
    if isinstance(trial, Result):
        return trial.key, trial.record.files[RUN_FILE]
    return trial.name, ""


def _common_tasks(sides: Sequence[_Side]) -> list[str]:
    tasks = [{trial.task for trial in trials} for _, trials in sides]
    common = set.intersection(*tasks)
    if not common:
        lines = [
            f"  {name}: {', '.join(sorted(own))}"
            for (name, _), own in zip(sides, tasks, strict=True)
        ]
        raise MissingError(
            "the systems have no task in common:\n"
            + "\n".join(lines)
            + "\nRun them on the same tasks with r2med eval."
        )
    return sorted(common)


def _same_data(sides: Sequence[_Side], task: str) -> list[Result | _FileTrial]:
    """Each side's trial on the newest data that all of them ran on."""
    by_data = []
    for name, trials in sides:
        own: dict[str, Result | _FileTrial] = {}
        for trial in trials:
            if trial.task == task:
                own.setdefault(trial.data, trial)
        if not own:
            raise MissingError(
                f"{name!r} has no stored result on {task}.\n"
                f"Run it first: r2med eval {quote(name)} --task {quote(task)}"
            )
        by_data.append(own)
    shared = next((data for data in by_data[0] if all(data in own for own in by_data)), None)
    if shared is None:
        lines = [
            f"  {name}: data {', '.join(data[:12] for data in own)}"
            for (name, _), own in zip(sides, by_data, strict=True)
        ]
        raise DataError(
            f"{task}: the results are of different data and cannot be paired:\n"
            + "\n".join(lines)
            + "\nRun all of them on the same files with r2med eval."
        )
    chosen = [own[shared] for own in by_data]
    if len({frozenset(trial.scores.query_ids.to_pylist()) for trial in chosen}) > 1:
        raise DataError(f"{task}: the results are of different queries and cannot be paired.")
    return chosen


@dataclass(frozen=True)
class Gate:
    """How far the first of two systems may fall behind the second."""

    metric: str
    points: float | None
    """The smallest drop that fails, in points (scores x 100); None is any significant drop."""

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Read `METRIC drops by POINTS` or `METRIC drops significantly`."""
        words = _FORM.fullmatch(" ".join(text.split()))
        if words is None:
            raise UsageError(
                f"--fail-if {text!r}: this condition cannot be read. Expected 'METRIC drops by "
                "POINTS' or 'METRIC drops significantly', as in 'ndcg@10 drops by 1' (points are "
                "scores x 100)."
            )
        points = float(words[2]) if words[2] else None
        if points == 0:
            raise UsageError(f"--fail-if {text!r}: expected a number of points above 0.")
        return cls(str(parse_metric(words[1])), points)

    def verdict(self, comparison: Comparison) -> dict[str, Any]:
        """Whether the first system drops, and what that rests on; scores are 0 to 1.

        On several tasks the mean of the tasks decides.
        """
        if len(comparison.systems) != 2:
            raise UsageError(
                f"--fail-if compares two systems, NEW and OLD; {len(comparison.systems)} are given."
            )
        (new, old), tasks = comparison.systems, comparison.tasks
        means = comparison.pairs[0].by_task
        drop = -100 * means.difference
        if self.points is None:
            how, failed = "significantly", drop > 0 and means.p_randomisation < SIGNIFICANT
        else:
            how, failed = f"by {self.points:g}", drop >= self.points - _ROUNDING
        return {
            "condition": f"{self.metric} drops {how}",
            "failed": failed,
            "new": new,
            "old": old,
            "over": next(iter(tasks)) if len(tasks) == 1 else f"mean of {len(tasks)} tasks",
            **asdict(means),
        }


def verdict_line(verdict: Mapping[str, Any]) -> str:
    """One line: the outcome, both scores, the difference and its p-value."""
    return (
        f"{'failed' if verdict['failed'] else 'passed'}: {verdict['condition']}: {verdict['new']} "
        f"{100 * verdict['mean_a']:.2f}, {verdict['old']} {100 * verdict['mean_b']:.2f}, "
        f"difference {100 * verdict['difference']:+.2f}, "
        f"{p_equation(verdict['p_randomisation'])} ({verdict['over']})"
    )
