"""Is one system really better? Stored systems and run files, compared over the same queries.

Sides meet only on the same data of a task and the same judged queries; anything else is an error
that says what to run. Differences are A minus B everywhere. A `Condition` such as `ndcg@10 drops by
1` makes a comparison a regression gate.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, islice
from pathlib import Path
from shlex import join, quote
from typing import Any

import numpy as np
import pyarrow as pa

from r2med.errors import DataError, MissingError, UsageError
from r2med.measure import Scores, measure, parse_metric
from r2med.measure.significance import (
    SIGNIFICANT,
    Difference,
    Matrix,
    Pair,
    compare_systems,
    p_equation,
)
from r2med.results.lookup import (
    file_run,
    find_named,
    is_file,
    own_tasks,
    stored_results,
    tell_versions,
)
from r2med.results.record import RUN_FILE, Result
from r2med.results.store import DEFAULT_FOLDER
from r2med.retrieve.conditions import Tell, log
from r2med.tabular import Tabular, columns_of, table_of
from r2med.tasks.load import load_tasks, task_names
from r2med.tasks.registry import grouped, in_suite_order, resolve
from r2med.tasks.task import Task

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
    name = str(parse_metric(metric))
    sides = aligned(systems, task=task, metric=name, results=results, root=root, tell=tell)
    pairs = compare_systems(sides.tasks, resamples=resamples)
    return Comparison(sides.systems, name, sides.suite, tuple(pairs))


@dataclass(frozen=True, eq=False)
class Comparison(Tabular):
    """Systems over the same queries; `pairs` refer to `systems` by their places."""

    drawn_by = "r2med.report.comparison"

    systems: tuple[str, ...]
    metric: str
    suite: str | None
    """The suite of all tasks; None for data of the user's own."""
    pairs: tuple[Pair, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks compared."""
        return tuple(each.task for each in self.pairs[0].tasks)

    def to_arrow(self) -> pa.Table:
        """One row per pair and task, and for several tasks one per pair and kind of mean.

        `p_holm` is corrected over the tasks of a pair, of the task mean over the pairs.
        """
        names = dict.fromkeys(("a", "b", "over"), str)
        columns = names | columns_of(Difference) | dict.fromkeys(("low", "high", "p_holm"), float)
        return table_of(columns, [row for pair in self.pairs for row in self._rows(pair)])

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

    def _rows(self, pair: Pair) -> Iterator[dict[str, Any]]:
        lines: list[tuple[str, Difference, float | None]] = [
            (each.task, each.difference, each.p_holm) for each in pair.tasks
        ]
        if len(lines) > 1:
            lines.append(("task mean", pair.by_task, pair.p_holm))
            lines.append(("all queries", pair.by_query, None))
        names = {"a": self.systems[pair.a], "b": self.systems[pair.b]}
        for over, line, p_holm in lines:
            yield {**names, "over": over, **vars(line), **vars(line.interval), "p_holm": p_holm}


@dataclass(frozen=True, eq=False)
class Aligned:
    """For every task the scores of the systems, queries by systems."""

    systems: tuple[str, ...]
    suite: str | None
    tasks: dict[str, Matrix]


def aligned(
    systems: Sequence[str | Path | Result],
    *,
    task: str | None = None,
    metric: str,
    results: str | Path | Sequence[Result] = DEFAULT_FOLDER,
    root: str | Path | None = None,
    tell: Tell = log,
) -> Aligned:
    """Bring the scores of systems to the same data and queries."""
    if len(systems) < 2:
        raise UsageError("two systems or more are needed, e.g. r2med compare bm25 bm25-lucene.")
    needed = any(not isinstance(each, Result) and is_file(each) for each in systems)
    own = own_tasks(results)
    loaded = list(islice(load_tasks(task, root=root, own=own), 2)) if task and needed else []
    folder = Path(results) if isinstance(results, str | Path) else Path("the results given")
    stored = stored_results(results, tell)
    sides = [_side(each, stored, loaded, metric, folder, tell) for each in systems]
    holders = Counter(side.name for side in sides)
    names = [
        f"{side.name} ({side.trials[0].key})"
        if holders[side.name] > 1 and len(side.trials) == 1
        else side.name
        for side in sides
    ]
    wanted = task_names(resolve(task, own), own) if task else _common_tasks(sides)
    trials = {name: _same_data(sides, name) for name in in_suite_order(wanted)}
    for one, other in combinations(range(len(sides)), 2):
        if all(_content(group[one]) == _content(group[other]) for group in trials.values()):
            raise UsageError(
                f"compare: the same system is given twice: {systems[one]} and {systems[other]} "
                f"are {trials[wanted[0]][one].key}."
            )
    for place, side in enumerate(sides):
        taken = [(group[place].task, group[place].data) for group in trials.values()]
        stored_trials = [each for each in side.trials if isinstance(each, Result)]
        tell_versions(
            ([each for each in stored_trials if (each.task, each.data) == one] for one in taken),
            tell,
        )
    suites = {trial.suite for group in trials.values() for trial in group}
    if len(suites) > 1:
        kinds = " and ".join(sorted(suite or "your data" for suite in suites))
        raise UsageError(
            f"the systems have results of {kinds} in common, which are never pooled. "
            "Choose with --task, e.g. --task demo."
        )
    without = [
        group[place].name
        for place in range(len(sides))
        for group in trials.values()
        if metric not in group[place].scores
    ]
    if without:
        again = list(dict.fromkeys(without))
        raise UsageError(
            f"{metric} is not stored for {' and '.join(again)}.\n"
            f"Add it: r2med eval {join(again)} --task {quote(','.join(grouped(wanted)))} "
            f"--metrics {metric}"
        )
    tasks = {name: _scores(group, sides, metric) for name, group in trials.items()}
    return Aligned(tuple(names), suites.pop(), tasks)


@dataclass(frozen=True, eq=False)
class _FileTrial:
    """The scores of a run file, with what a `Result` says of itself."""

    name: str
    key: str
    task: str
    suite: str | None
    data: str
    scores: Scores


def _content(trial: Result | _FileTrial) -> tuple[str, str]:
    """What two names of one result share; a user's class may have changed under one identity."""
    return trial.key, trial.record.files[RUN_FILE] if isinstance(trial, Result) else ""


@dataclass(frozen=True, eq=False)
class _Side:
    """A system and its trials, newest first."""

    name: str
    trials: Sequence[Result | _FileTrial]


def _side(
    system: str | Path | Result,
    stored: Sequence[Result],
    loaded: Sequence[Task],
    metric: str,
    folder: Path,
    tell: Tell,
) -> _Side:
    if isinstance(system, Result):
        return _Side(system.name, [system])
    named = find_named(str(system), stored, folder)
    if named.file is None:
        return _Side(named.name, named.results)
    if len(loaded) != 1:
        raise UsageError(
            f"{named.file} is a run file, which does not say its task: "
            "give exactly one with --task."
        )
    [task] = loaded
    scores = measure(file_run(named.file, task, tell), task.judgements, [metric])
    return _Side(
        named.name, [_FileTrial(named.name, named.name, task.name, task.suite, task.hash, scores)]
    )


def _common_tasks(sides: Sequence[_Side]) -> list[str]:
    first, *others = ([trial.task for trial in side.trials] for side in sides)
    common = [task for task in dict.fromkeys(first) if all(task in other for other in others)]
    if not common:
        lines = "\n".join(
            f"  {side.name}: {', '.join(sorted({trial.task for trial in side.trials}))}"
            for side in sides
        )
        raise MissingError(
            f"the systems have no task in common:\n{lines}\n"
            "Run them on the same tasks with r2med eval."
        )
    return sorted(common)


def _same_data(sides: Sequence[_Side], task: str) -> list[Result | _FileTrial]:
    """Each side's trial on the newest data that all of them ran on."""
    by_data = []
    for side in sides:
        own: dict[str, Result | _FileTrial] = {}
        for trial in side.trials:
            if trial.task == task:
                own.setdefault(trial.data, trial)
        if not own:
            raise MissingError(
                f"{side.name!r} has no stored result on {task}.\n"
                f"Run it first: r2med eval {quote(side.name)} --task {quote(task)}"
            )
        by_data.append(own)
    shared = [data for data in by_data[0] if all(data in own for own in by_data)]
    if not shared:
        lines = "\n".join(
            f"  {side.name}: data {next(iter(own))[:12]}"
            for side, own in zip(sides, by_data, strict=True)
        )
        raise DataError(
            f"{task}: the results are of different data and cannot be paired.\n{lines}\n"
            "Run all of them on the same files with r2med eval."
        )
    return [own[shared[0]] for own in by_data]


def _scores(trials: Sequence[Result | _FileTrial], sides: Sequence[_Side], metric: str) -> Matrix:
    tables = [trial.scores for trial in trials]
    task, queries = trials[0].task, tables[0].query_ids
    for side, table in zip(sides, tables, strict=True):
        if set(queries.to_pylist()) != set(table.query_ids.to_pylist()):
            raise DataError(
                f"{task}: {sides[0].name} and {side.name} were scored on different queries, so "
                "they cannot be paired."
            )
    return np.column_stack([table.at(queries)[metric] for table in tables])


@dataclass(frozen=True)
class Condition:
    """How far the first of two systems may fall behind the second."""

    metric: str
    points: float | None
    """The smallest drop that fails, in points (scores x 100); None is any significant drop."""

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read `METRIC drops by POINTS` or `METRIC drops significantly`."""
        words = _FORM.fullmatch(" ".join(text.split()))
        if words is None:
            raise UsageError(
                f"--fail-if {text!r}: this condition cannot be read. Expected 'METRIC drops by "
                "POINTS' or 'METRIC drops significantly', as in 'ndcg@10 drops by 1' (points are "
                "scores x 100)."
            )
        points = float(words[2]) if words[2] else None
        if points == 0 or points == math.inf:
            raise UsageError(f"--fail-if {text!r}: expected a number of points above 0.")
        return cls(str(parse_metric(words[1])), points)

    def __str__(self) -> str:
        how = "significantly" if self.points is None else f"by {self.points:g}"
        return f"{self.metric} drops {how}"

    def judge(self, comparison: Comparison) -> Verdict:
        """Whether the first system drops; on several tasks the mean of the tasks decides."""
        if len(comparison.systems) != 2:
            raise UsageError(
                f"--fail-if compares two systems, NEW and OLD; {len(comparison.systems)} are given."
            )
        tasks = comparison.tasks
        over = tasks[0] if len(tasks) == 1 else f"mean of {len(tasks)} tasks"
        return Verdict(self, comparison.systems, over, comparison.pairs[0].by_task)


@dataclass(frozen=True)
class Verdict:
    """What a condition found."""

    condition: Condition
    systems: tuple[str, ...]
    over: str
    difference: Difference

    @property
    def failed(self) -> bool:
        """Whether the first system fell as far as the condition says."""
        drop = -100 * self.difference.difference
        if self.condition.points is not None:
            return drop >= self.condition.points - _ROUNDING
        return drop > 0 and self.difference.p_randomisation < SIGNIFICANT

    def to_json(self) -> dict[str, Any]:
        """The condition, its outcome and what it rests on; scores 0 to 1."""
        return {
            "condition": str(self.condition),
            "failed": self.failed,
            "new": self.systems[0],
            "old": self.systems[1],
            "over": self.over,
            **asdict(self.difference),
        }

    def __str__(self) -> str:
        """One line: the outcome, both scores, the difference and its p-value."""
        means, (new, old) = self.difference, self.systems
        return (
            f"{'failed' if self.failed else 'passed'}: {self.condition}: {new} "
            f"{100 * means.mean_a:.2f}, {old} {100 * means.mean_b:.2f}, difference "
            f"{100 * means.difference:+.2f}, {p_equation(means.p_randomisation)} "
            f"({self.over})"
        )
