"""Who is compared: stored systems, result folders and TREC run files, brought to the same queries.

Two sides meet only on the same data of a task and the same judged queries; anything else is an
error that says what to run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, MissingError, UsageError
from r2med.measure import Scores, measure
from r2med.results.lookup import find_named, newest, quoted
from r2med.results.record import Result
from r2med.retrieve.conditions import Tell, log
from r2med.runs import Run
from r2med.tasks.registry import all_entries
from r2med.tasks.task import Task

Column = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trial:
    """One contender's scores on one task, and exactly which data they are scores on."""

    task: str
    suite: str | None
    data: str
    scores: Callable[[], Scores]
    result: Result | None = None


@dataclass(frozen=True, eq=False)
class Contender:
    """A name and its trials, newest first."""

    name: str
    trials: Sequence[Trial]


def contender(
    text: str, results: Sequence[Result], tasks: Sequence[Task], metric: str, folder: Path
) -> Contender:
    """Find what a text names: a run file, a stored result's folder, or a system in `results`.

    `tasks` are loaded only for run files, which need judgements.
    """
    named = find_named(text, results, folder)
    if named.file is not None:
        return _run_file(named.file, tasks, metric)
    return Contender(named.name, [_trial(result) for result in named.results])


def aligned(
    contenders: Sequence[Contender],
    wanted: Sequence[str] | None,
    metric: str,
    tell: Tell = log,
) -> tuple[str | None, dict[str, list[Column]]]:
    """The suite, and for every task one column a contender, aligned by query.

    Without `wanted` the tasks are those that all contenders have.
    """
    names = list(wanted) if wanted is not None else _common_tasks(contenders)
    trials = {task: _same_data(contenders, task, tell) for task in names}
    suites = {trial.suite for group in trials.values() for trial in group}
    if len(suites) > 1:
        told = " and ".join(sorted(suite or "your data" for suite in suites))
        raise UsageError(
            f"the systems have results of {told} in common, which are never pooled. "
            "Choose with --task, e.g. --task demo."
        )
    columns = {task: _columns(group, contenders, metric) for task, group in trials.items()}
    return suites.pop(), columns


def _run_file(path: Path, tasks: Sequence[Task], metric: str) -> Contender:
    if len(tasks) != 1:
        raise UsageError(
            f"{path} is a run file, which does not say its task: give exactly one with --task."
        )
    task = tasks[0]
    run = Run.from_parquet(path) if path.suffix == ".parquet" else Run.from_trec(path)
    scores = measure(run, task.judgements, [metric])
    return Contender(str(path), [Trial(task.name, task.suite, task.hash, lambda: scores)])


def _trial(result: Result) -> Trial:
    record = result.record.task
    return Trial(record.name, record.suite, record.hash, lambda: result.scores, result)


def _common_tasks(contenders: Sequence[Contender]) -> list[str]:
    first, *others = ([trial.task for trial in each.trials] for each in contenders)
    common = [task for task in dict.fromkeys(first) if all(task in other for other in others)]
    if not common:
        told = "\n".join(
            f"  {each.name}: {', '.join(sorted({trial.task for trial in each.trials}))}"
            for each in contenders
        )
        raise MissingError(
            f"the systems have no task in common:\n{told}\n"
            "Run them on the same tasks with r2med eval."
        )
    order = {entry.name: place for place, entry in enumerate(all_entries())}
    return sorted(common, key=lambda task: (order.get(task, len(order)), task))


def _same_data(contenders: Sequence[Contender], task: str, tell: Tell) -> list[Trial]:
    """Each contender's trial on the newest data that all of them ran on."""
    by_data: list[dict[str, Trial]] = []
    for each in contenders:
        own = {trial.data: trial for trial in reversed(each.trials) if trial.task == task}
        if not own:
            raise MissingError(
                f"{each.name!r} has no stored result on {task}.\n"
                f"Run it first: r2med eval {quoted(each.name)} --task {quoted(task)}"
            )
        by_data.append(own)
    shared = [data for data in reversed(by_data[0]) if all(data in own for own in by_data)]
    if not shared:
        told = "\n".join(
            f"  {each.name}: data {next(reversed(own))[:12]}"
            for each, own in zip(contenders, by_data, strict=True)
        )
        raise DataError(
            f"{task}: the results are of different data and cannot be paired.\n{told}\n"
            "Run all of them on the same files with r2med eval."
        )
    for each in contenders:
        same = [t.result for t in each.trials if (t.task, t.data) == (task, shared[0])]
        if stored := [result for result in same if result]:
            newest(stored, tell)
    return [own[shared[0]] for own in by_data]


def _columns(trials: Sequence[Trial], contenders: Sequence[Contender], metric: str) -> list[Column]:
    tables = [trial.scores() for trial in trials]
    for each, table in zip(contenders, tables, strict=True):
        if metric not in table:
            raise UsageError(
                f"{each.name}: {metric} is not stored for {trials[0].task}.\n"
                f"Add it: r2med eval {quoted(each.name)} --task {quoted(trials[0].task)} "
                f"--metrics {metric}"
            )
    queries = tables[0].query_ids
    for each, table in zip(contenders, tables, strict=True):
        if set(queries.to_pylist()) != set(table.query_ids.to_pylist()):
            raise DataError(
                f"{trials[0].task}: {contenders[0].name} and {each.name} were scored on different "
                "queries, so they cannot be paired."
            )
    return [table.at(queries)[metric] for table in tables]
