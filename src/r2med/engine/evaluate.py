"""Evaluate systems on tasks: run what is not stored yet, measure it, keep it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ForwardRef, Literal, TypedDict, Unpack, cast, overload

from r2med.engine.cells import Cells
from r2med.engine.status import watched
from r2med.errors import UsageError, WorkError, nearest
from r2med.measure.metrics import Metric, parse_metric
from r2med.results.lookup import own_tasks
from r2med.results.record import Result
from r2med.results.store import DEFAULT_FOLDER, Store
from r2med.retrieve.conditions import Conditions, Tell
from r2med.systems.build import System
from r2med.systems.work import Ledger
from r2med.tasks.load import load_task, task_names
from r2med.tasks.registry import resolve
from r2med.tasks.task import Task

if TYPE_CHECKING:
    from r2med.retrieve.workers import Workers

TaskLike = Task | str | Path
AnyTasks = TaskLike | Sequence[TaskLike]
Suite = Literal["full", "nano", "demo", "all", "All"]


class Options(TypedDict, total=False):
    """How to evaluate, whatever the systems and tasks."""

    results: str | Path
    """The results folder."""
    metrics: Sequence[str]
    """Metrics beyond the stored ones, such as ndcg@20."""
    sample: int | None
    """Only so many judged queries of each task, for a quick try; never part of a mean."""
    force: bool
    """Run again even where a finished result is stored."""
    root: str | Path | None
    """A folder with data of registered tasks in the reference layout."""
    strict: bool
    """Fail on judgements and given runs with unknown ids instead of warning."""
    models: Mapping[str, object]
    """Objects of the caller's own by the names that the systems' texts use for them."""
    conditions: Conditions
    """How systems given as text, or as models, work: device, remote code, limits of LLMs."""
    engine: str
    """Where models named by text run: local, processes, processes=N, ray or ray=ADDRESS."""
    worker_timeout: float
    """Seconds that a worker may take for one piece of work."""
    tell: Tell
    """Hears what a reader of the scores should know; without it, Python's log does."""
    progress: bool
    """Show how far it has come, and notes; by default in a terminal or notebook."""


@overload
def evaluate(  # type: ignore[overload-overlap]
    systems: object, tasks: Suite, **options: Unpack[Options]
) -> list[Result]: ...
@overload
def evaluate(  # type: ignore[overload-overlap]
    systems: list[Any] | tuple[Any, ...], tasks: AnyTasks, **options: Unpack[Options]
) -> list[Result]: ...
@overload
def evaluate(  # type: ignore[overload-overlap]
    systems: object, tasks: TaskLike, **options: Unpack[Options]
) -> Result: ...
@overload
def evaluate(
    systems: object, tasks: Sequence[TaskLike], **options: Unpack[Options]
) -> list[Result]: ...
def evaluate(systems: object, tasks: AnyTasks, **options: Unpack[Options]) -> Result | list[Result]:
    """Run every system on every task and return the results, task by task.

    A system is a text such as `bm25`, a System, or a model of your own: see docs/your-model.md.
    A task is a name, a folder or a loaded Task. A finished result of the same data and system is
    returned as it is, unless `force`. One system on one task gives one result; lists, a suite such
    as `demo` and names with commas give a list. `r2med.engine.evaluate.Options` describes the
    options.
    """
    every_system, named = _several(systems), _several(tasks)
    every_task = _tasks(named, own_tasks(options.get("results", DEFAULT_FOLDER)))
    with _shown(options, len(every_system) * len(every_task)) as step:
        results = []
        for result in each_result(every_system, every_task, **options):
            step(result)
            results.append(result)
    one_system = len(every_system) == 1 and every_system[0] is systems
    one_task = len(every_task) == 1 and named[0] is tasks
    return results[0] if one_system and one_task else results


def _signature() -> Signature:
    """The parameters with every option, for `help(evaluate)`; their defaults are each_result's."""
    defaults: dict[str, object] = {"results": str(DEFAULT_FOLDER), "metrics": (), "engine": "local"}
    defaults |= {"force": False, "strict": False}
    plain = signature(evaluate)
    options = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=defaults.get(name),
            annotation=hint.__forward_arg__ if isinstance(hint, ForwardRef) else hint,
        )
        for name, hint in Options.__annotations__.items()
    ]
    return plain.replace(parameters=[*list(plain.parameters.values())[:2], *options])


evaluate.__signature__ = _signature()  # type: ignore[attr-defined]


@contextmanager
def _shown(options: Options, total: int) -> Iterator[Callable[[Result], None]]:
    """What shows a result where somebody looks, or as `progress` says; work and notes are too."""
    console = import_module("r2med.report.console")
    if not options.pop("progress", console.is_watched()):
        yield lambda result: None
        return
    with console.watch(total) as (work, step):
        tell = options.setdefault("tell", console.notice)
        conditions = options.get("conditions", Conditions())
        options["conditions"] = replace(conditions, tell=tell, progress=work)
        yield step


def each_result(
    systems: Sequence[object], tasks: Sequence[TaskLike], **options: Unpack[Options]
) -> Iterator[Result]:
    """The results as they come, so that a caller can show progress; others may follow it too."""
    for name in options.keys() - Options.__annotations__:
        raise TypeError(
            f"evaluate() got an unexpected keyword argument {name!r}. "
            f"{nearest(name, Options.__annotations__)}"
        )
    store = Store(options.get("results", DEFAULT_FOLDER))
    extra = [parse_metric(name) for name in options.get("metrics", ())]
    tell = options.get("tell") or options.get("conditions", Conditions()).tell
    workers = _workers(systems, options, tell)
    built = _built(systems, options, workers)
    _tell_shallow(built, extra, tell)
    names = task_names(tasks, own_tasks(store.root))
    cells = [(name, system.stage.text) for name in names for system in built]
    once = cache(tell)
    every = (
        _cells(like, name, store, once, options) for like, name in zip(tasks, names, strict=True)
    )
    try:
        yield from watched(_each(built, every, extra), store.root, cells)
    finally:
        for system in built:
            system.conditions.close()
        if workers:
            workers.close()


def _each(
    systems: Sequence[System], every: Iterable[Cells], extra: Sequence[Metric]
) -> Iterator[Result]:
    """Task by task; with workers, what needs no model is begun on all tasks beforehand.

    On a task all systems are looked at before one is run, so that a name that nothing answers to
    ends the command at once. A cell whose work failed on several workers is left out, and named
    when the others are done.
    """
    if any(system.conditions.workers for system in systems):
        every = list(every)
        for cells in every:
            for system in systems:
                if system.conditions.workers:
                    cells.begin(system.stage, system.conditions.workers)
    failures = []
    for cells in every:
        for system, cell in [(system, cells.cell(system)) for system in systems]:
            try:
                result = cells.result(system, cell, extra)
            except WorkError as problem:
                failures.append(f"{system} on {cells.task.name}: {problem}")
                continue
            yield result
    if failures:
        raise WorkError("\n".join(failures))


def _cells(like: TaskLike, name: str, store: Store, tell: Tell, options: Options) -> Cells:
    loading, sample = Ledger(), options.get("sample")
    with loading.stage("load"):
        if isinstance(like, Task):
            task = like if like.name == name else replace(like, name=name)
        else:
            strict = options.get("strict", False)
            task = load_task(like, name=name, root=options.get("root"), strict=strict)
        task = task if sample is None else task.sample(sample)
    store.sweep(task.name, task.suite)
    for notice in task.notices:
        tell(f"{task.name}: {notice}")
    return Cells(task, store, loading, tell, options.get("force", False))


def _workers(systems: Sequence[object], options: Options, tell: Tell) -> Workers | None:
    """The workers that `engine` asks for; they cannot build an object that only lives here."""
    if "engine" not in options and "worker_timeout" not in options:
        return None
    from r2med.engine.processes import open_workers

    workers = open_workers(
        options.get("engine", "local"),
        timeout=options.get("worker_timeout"),
        device=options.get("conditions", Conditions()).device,
        tell=tell,
    )
    if workers and (options.get("models") or not all(isinstance(one, str) for one in systems)):
        tell(
            f"engine={workers.name}: models given as objects run in this process. Name them as "
            "'model:package.module:Class' to let workers build them."
        )
    return workers


def _several(values: object) -> list[Any]:
    """One thing as a list of it; a torch model can be iterated over, and is one thing still."""
    many = isinstance(values, Iterable) and not isinstance(values, str) and not callable(values)
    return list(cast("Iterable[Any]", values)) if many else [values]


def _tasks(tasks: Sequence[TaskLike], own: Mapping[str, Path]) -> list[TaskLike]:
    """Every task of some names: a suite is its tasks, and commas part names."""
    every: list[TaskLike] = []
    for task in tasks:
        if not isinstance(task, Task | str | Path):
            raise UsageError(
                f"a {type(task).__name__} is no task: expected a name such as 'demo/biology', a "
                "suite such as 'demo', a folder's path, or a Task that r2med.load_task gave."
            )
        if isinstance(task, str):
            found = resolve(task, own)
            every += [item if isinstance(item, Path) else item.name for item in found]
        else:
            every.append(task)
    return every


def _built(systems: Sequence[object], options: Options, workers: Workers | None) -> list[System]:
    """Systems from texts and models, and those that were built before, under the same terms."""
    terms: dict[str, Any] = {key: options[key] for key in ("tell", "strict") if key in options}
    if workers:
        terms["workers"] = workers
    conditions = replace(options.get("conditions", Conditions()), **terms)
    built = []
    for system in systems:
        if isinstance(system, System):
            built.append(replace(system, conditions=replace(system.conditions, **terms)))
        elif isinstance(system, str):
            models = options.get("models", {})
            built.append(System.from_spec(system, conditions, models=models))
        else:
            built.append(System.from_model(system, conditions=conditions))
    holders: dict[str, System] = {}
    for one in built:  # one label, one system: tables would show two as one
        other = holders.setdefault(one.label or str(one), one)
        if other.spec.unlabelled != one.spec.unlabelled:
            raise UsageError(f"label {one.label!r} is given twice: {other} and {one}.")
    return built


def _tell_shallow(systems: Sequence[System], metrics: Sequence[Metric], tell: Tell) -> None:
    """Say which metrics look deeper than a system ranks: they cannot see what it left out."""
    for system in systems:
        depth = system.stage.depth
        deeper = [metric for metric in metrics if metric.cutoff and metric.cutoff > depth]
        if deeper:
            names = ", ".join(map(str, deeper))
            tell(
                f"{system}: {names} of lists of {depth} documents: what stands deeper counts as "
                f"not found. A deeper run is written with @, as in bm25@{deeper[-1].cutoff}."
            )
