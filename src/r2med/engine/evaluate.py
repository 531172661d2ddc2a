"""Evaluate systems on tasks: run what is not stored yet, measure it, keep it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack, overload

from r2med.engine.evaluation import Evaluation
from r2med.measure import parse_metric
from r2med.results import DEFAULT_FOLDER, Result, Store
from r2med.systems.ledger import Ledger
from r2med.systems.pipeline import System
from r2med.tasks.load import load_task
from r2med.tasks.task import Task

Tell = Callable[[str], None]
TaskLike = Task | str | Path
Many = TaskLike | Sequence[TaskLike]


class Options(TypedDict, total=False):
    """How to evaluate, whatever the systems and tasks."""

    results: str | Path
    """The results folder."""
    metrics: Sequence[str]
    """Metrics beyond the stored ones, such as ndcg@20."""
    force: bool
    """Run again even where a finished result is stored."""
    root: str | Path | None
    """A folder with data of registered tasks in the reference layout."""
    strict: bool
    """Fail on judgements and given runs with unknown ids instead of warning."""
    tell: Tell
    """Hears what a reader of the scores should know."""


@overload
def evaluate(systems: str | System, tasks: TaskLike, **options: Unpack[Options]) -> Result: ...
@overload
def evaluate(
    systems: Sequence[str | System], tasks: Many, **options: Unpack[Options]
) -> list[Result]: ...
@overload
def evaluate(
    systems: str | System, tasks: Sequence[TaskLike], **options: Unpack[Options]
) -> list[Result]: ...
def evaluate(
    systems: str | System | Sequence[str | System], tasks: Many, **options: Unpack[Options]
) -> Result | list[Result]:
    """Run every system on every task and return the results, task by task.

    A finished result of the same data and system is returned as it is, unless `force`.
    One system on one task gives one result, lists give a list.
    """
    one_system = isinstance(systems, str | System)
    one_task = isinstance(tasks, Task | str | Path)
    results = list(
        each_result([systems] if one_system else systems, [tasks] if one_task else tasks, **options)
    )
    return results[0] if one_system and one_task else results


def each_result(
    systems: Sequence[str | System], tasks: Sequence[TaskLike], **options: Unpack[Options]
) -> Iterator[Result]:
    """The results as they come, so that a caller can show progress."""
    store = Store(options.get("results", DEFAULT_FOLDER))
    tell = options.get("tell", lambda message: None)
    extra = [parse_metric(name) for name in options.get("metrics", ())]
    built = [
        system if isinstance(system, System) else System.from_spec(system) for system in systems
    ]
    for like in tasks:
        loading = Ledger()
        with loading.stage("load"):
            task = _loaded(like, options)
        for notice in task.notices:
            tell(f"{task.name}: {notice}")
        evaluation = Evaluation(task, store, loading, tell, options.get("force", False))
        for system in built:
            strict = options.get("strict", False) or system.conditions.strict
            heard = tell if "tell" in options else system.conditions.tell
            conditions = replace(system.conditions, strict=strict, tell=heard)
            yield evaluation.result(system.part, conditions, extra=extra)


def _loaded(like: TaskLike, options: Options) -> Task:
    if isinstance(like, Task):
        return like
    return load_task(like, root=options.get("root"), strict=options.get("strict", False))
