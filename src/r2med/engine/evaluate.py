"""Evaluate systems on tasks: run what is not stored yet, measure it, keep it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack, overload

from r2med.engine.evaluation import Evaluation
from r2med.measure import parse_metric
from r2med.results import DEFAULT_FOLDER, Result, Store
from r2med.retrieve.conditions import Conditions
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
    models: Mapping[str, object]
    """Objects of the caller's own by the names that the systems' texts use for them."""
    conditions: Conditions
    """How systems given as text work: device, remote code, limits of language models."""
    tell: Tell
    """Hears what a reader of the scores should know."""


@overload
def evaluate(  # type: ignore[overload-overlap]
    systems: str | System, tasks: TaskLike, **options: Unpack[Options]
) -> Result: ...
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
    several_systems = [systems] if isinstance(systems, str | System) else systems
    several_tasks = [tasks] if isinstance(tasks, Task | str | Path) else tasks
    results = list(each_result(several_systems, several_tasks, **options))
    alone = several_systems is not systems and several_tasks is not tasks
    return results[0] if alone else results


def each_result(
    systems: Sequence[str | System], tasks: Sequence[TaskLike], **options: Unpack[Options]
) -> Iterator[Result]:
    """The results as they come, so that a caller can show progress."""
    store = Store(options.get("results", DEFAULT_FOLDER))
    allowed = options.get("conditions", Conditions())
    tell = options.get("tell", allowed.tell)
    strict = options.get("strict", False) or allowed.strict
    conditions = replace(allowed, tell=tell, strict=strict)
    extra = [parse_metric(name) for name in options.get("metrics", ())]
    models = options.get("models", {})
    built = [
        system
        if isinstance(system, System)
        else System.from_spec(system, conditions, models=models)
        for system in systems
    ]
    for like in tasks:
        loading = Ledger()
        with loading.stage("load"):
            task = _loaded(like, options)
        for notice in task.notices:
            tell(f"{task.name}: {notice}")
        evaluation = Evaluation(task, store, loading, tell, options.get("force", False))
        for system in built:
            heard = tell if "tell" in options else system.conditions.tell
            told = replace(system.conditions, strict=strict or system.conditions.strict, tell=heard)
            yield evaluation.result(system.part, told, extra=extra)


def _loaded(like: TaskLike, options: Options) -> Task:
    if isinstance(like, Task):
        return like
    return load_task(like, root=options.get("root"), strict=options.get("strict", False))
