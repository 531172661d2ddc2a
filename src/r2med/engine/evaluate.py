"""Evaluate systems on tasks: run what is not stored yet, measure it, keep it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast, overload

from r2med.engine.evaluation import Evaluation
from r2med.errors import UsageError
from r2med.measure import parse_metric
from r2med.results.record import Result
from r2med.results.store import DEFAULT_FOLDER, Store
from r2med.retrieve.conditions import Conditions
from r2med.systems.build import System
from r2med.systems.work import Ledger
from r2med.tasks.load import load_task, task_names
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
    results = list(each_result(_several(systems), _several(tasks), **options))
    alone = isinstance(systems, str | System) and isinstance(tasks, Task | str | Path)
    return results[0] if alone else results


def each_result(
    systems: Sequence[str | System], tasks: Sequence[TaskLike], **options: Unpack[Options]
) -> Iterator[Result]:
    """The results as they come, so that a caller can show progress."""
    _refuse_strangers(systems, tasks)
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
    try:
        for like, name in zip(tasks, task_names(tasks), strict=True):
            loading = Ledger()
            with loading.stage("load"):
                task = _loaded(like, name, options)
            for notice in task.notices:
                tell(f"{task.name}: {notice}")
            evaluation = Evaluation(task, store, loading, tell, options.get("force", False))
            for system in built:
                terms = system.conditions
                heard = tell if "tell" in options else terms.tell
                told = replace(terms, strict=strict or terms.strict, tell=heard)
                yield evaluation.result(system.part, told, extra=extra)
    finally:
        for system in built:
            system.conditions.close()


def _several(given: object) -> list[Any]:
    """One thing as a list of it; a torch model can be iterated over, and is one thing still."""
    many = isinstance(given, Iterable) and not isinstance(given, str) and not callable(given)
    return list(cast("Iterable[Any]", given)) if many else [given]


def _refuse_strangers(systems: Sequence[object], tasks: Sequence[object]) -> None:
    for system in systems:
        if not isinstance(system, str | System):
            raise UsageError(
                f"a {type(system).__name__} is no system: expected a text such as 'bm25', or a "
                "System. A model of your own becomes one with "
                "r2med.System.from_model(model, name='mine')."
            )
    for task in tasks:
        if not isinstance(task, Task | str | Path):
            raise UsageError(
                f"a {type(task).__name__} is no task: expected a name such as 'demo/biology', a "
                "folder's path, or a Task that r2med.load_task gave."
            )


def _loaded(like: TaskLike, name: str, options: Options) -> Task:
    if isinstance(like, Task):
        return like if like.name == name else replace(like, name=name)
    strict = options.get("strict", False)
    return load_task(like, name=name, root=options.get("root"), strict=strict)
