"""Evaluate systems on tasks: run and measure systems, and store their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from r2med.errors import UsageError, WorkError
from r2med.evaluation.status import track_status
from r2med.evaluation.task_runner import TaskRunner
from r2med.execution.options import RunOptions
from r2med.execution.resources import Progress, Resources, Warn, ignore_progress, log_warning
from r2med.measure.metrics import Metric, parse_metric
from r2med.results.evaluation import ResultList
from r2med.results.record import Result
from r2med.results.select import find_local_tasks
from r2med.results.store import DEFAULT_FOLDER, Store
from r2med.systems.build import System
from r2med.systems.output import measure_step
from r2med.tasks.load import load_entry, load_task, task_names
from r2med.tasks.registry import TaskEntry, resolve
from r2med.tasks.task import Task

if TYPE_CHECKING:
    from r2med.execution.workers import Workers

TaskLike = Task | TaskEntry | str | Path
AnyTasks = TaskLike | Sequence[TaskLike]


def evaluate(
    system: object,
    task: TaskLike,
    *,
    results: str | Path = DEFAULT_FOLDER,
    metrics: Sequence[str] = (),
    sample: int | None = None,
    force: bool = False,
    root: str | Path | None = None,
    strict: bool = False,
    models: Mapping[str, object] | None = None,
    options: RunOptions | None = None,
    resources: Resources | None = None,
    engine: str = "local",
    worker_timeout: float | None = None,
    warn: Warn | None = None,
    progress: bool | None = None,
) -> Result:
    """Run one system on one task and return its result.

    A stored result of the same data and system is returned unchanged, unless `force`. Use
    `evaluate_all` for several systems, several tasks or a suite. They are two functions so that
    the common call returns a plain `Result`, and the type never depends on the arguments' values.

    Args:
        system: A spec such as "bm25", a System, or a model of your own (docs/your-model.md).
        task: A task name, a folder or a loaded Task.
        results: The results folder.
        metrics: Metrics to compute besides the stored ones, such as "ndcg@20".
        sample: Number of judged queries per task, sampled with a fixed seed, for a quick try.
        force: Recompute and overwrite stored results.
        root: A folder with data of registered tasks in the reference layout.
        strict: Treat data warnings as errors.
        models: Python objects by the names that specs use for them.
        options: How systems given as specs or models run.
        resources: Resources to use instead of new ones made from `options`; systems that share
            them share one budget.
        engine: Where models run: local, processes, processes=N, ray or ray=ADDRESS.
        worker_timeout: Seconds that a worker may take for one batch.
        warn: Callback for user-facing warnings; Python's logging by default.
        progress: Whether to show progress; None shows it in a terminal or notebook.

    Returns:
        The result: metrics, scores per query, the run and its record.

    Raises:
        R2MedError: If the system, the task or an option is not valid, or a model is missing.

    Examples:
        >>> result = evaluate("bm25", "demo/biology")
        >>> result.metrics["ndcg@10"] > 0.1
        True

    """
    for value, function in ((system, "systems"), (task, "tasks")):
        if isinstance(value, list | tuple):
            raise UsageError(
                f"evaluate() runs one system on one task, got {len(value)} {function}. Use "
                "evaluate_all() for several."
            )
    tasks = _resolve_tasks([task], find_local_tasks(results))
    if len(tasks) != 1:
        raise UsageError(
            f"evaluate() runs one system on one task; {task!r} is {len(tasks)} tasks. Use "
            "evaluate_all() for several."
        )
    [result] = evaluate_all(
        [system],
        tasks,
        results=results,
        metrics=metrics,
        sample=sample,
        force=force,
        root=root,
        strict=strict,
        models=models,
        options=options,
        resources=resources,
        engine=engine,
        worker_timeout=worker_timeout,
        warn=warn,
        progress=progress,
    )
    return result


def evaluate_all(
    systems: object,
    tasks: AnyTasks,
    *,
    results: str | Path = DEFAULT_FOLDER,
    metrics: Sequence[str] = (),
    sample: int | None = None,
    force: bool = False,
    root: str | Path | None = None,
    strict: bool = False,
    models: Mapping[str, object] | None = None,
    options: RunOptions | None = None,
    resources: Resources | None = None,
    engine: str = "local",
    worker_timeout: float | None = None,
    warn: Warn | None = None,
    progress: bool | None = None,
) -> list[Result]:
    """Run every system on every task and return the results, task by task.

    Args:
        systems: Specs, Systems or models of your own; one of them or a list.
        tasks: Task names, suites, folders or loaded Tasks; one of them or a list.
        results: The results folder.
        metrics: Metrics to compute besides the stored ones, such as "ndcg@20".
        sample: Number of judged queries per task, sampled with a fixed seed, for a quick try.
        force: Recompute and overwrite stored results.
        root: A folder with data of registered tasks in the reference layout.
        strict: Treat data warnings as errors.
        models: Python objects by the names that specs use for them.
        options: How systems given as specs or models run.
        resources: Resources to use instead of new ones made from `options`; systems that share
            them share one budget.
        engine: Where models run: local, processes, processes=N, ray or ray=ADDRESS.
        worker_timeout: Seconds that a worker may take for one batch.
        warn: Callback for user-facing warnings; Python's logging by default.
        progress: Whether to show progress; None shows it in a terminal or notebook.

    Returns:
        One result for each task and system, in this order.

    Raises:
        R2MedError: If a system, a task or an option is not valid, or a model is missing.

    Examples:
        >>> results = evaluate_all(["bm25", "bm25-nano"], "demo/biology")
        >>> [result.system for result in results]
        ['bm25', 'bm25-nano']

    """
    system_list = _as_list(systems)
    task_list = _resolve_tasks(_as_list(tasks), find_local_tasks(results))
    if resources is not None and options is not None:
        raise UsageError("give `options` or `resources`, not both: resources have options.")
    finished = ResultList()
    with ExitStack() as stack:
        display = stack.enter_context(
            _progress_display(progress, len(system_list) * len(task_list))
        )
        if resources is None:
            show_work = display.show_work if display else ignore_progress
            warn = warn or (display.warn if display else log_warning)
            resources = stack.enter_context(Resources(options, warn=warn, progress=show_work))
        for result in each_result(
            system_list,
            task_list,
            resources=resources,
            results=results,
            metrics=metrics,
            sample=sample,
            force=force,
            root=root,
            strict=strict,
            models=models,
            engine=engine,
            worker_timeout=worker_timeout,
            warn=warn,
        ):
            if display:
                display.show_result(result)
            finished.append(result)
    return finished


@dataclass(frozen=True)
class _Display:
    """The callbacks of a progress display."""

    show_work: Progress
    show_result: Callable[[Result], None]
    warn: Warn


@contextmanager
def _progress_display(show: bool | None, total: int) -> Iterator[_Display | None]:
    """Yield the callbacks of a progress display, or None if no progress is shown.

    If `show` is None, progress is shown in a terminal or notebook only.
    """
    console = import_module("r2med.report.console")
    if show is False or (show is None and not console.is_watched()):
        yield None
        return
    with console.watch(total) as (show_work, show_result):
        yield _Display(show_work, show_result, console.notice)


def each_result(
    systems: Sequence[object],
    tasks: Sequence[TaskLike],
    *,
    resources: Resources | None = None,
    results: str | Path = DEFAULT_FOLDER,
    metrics: Sequence[str] = (),
    sample: int | None = None,
    force: bool = False,
    root: str | Path | None = None,
    strict: bool = False,
    models: Mapping[str, object] | None = None,
    engine: str = "local",
    worker_timeout: float | None = None,
    warn: Warn | None = None,
) -> Iterator[Result]:
    """Yield each result immediately, so that a caller can show it; see `evaluate`."""
    resources = resources or Resources()
    warn = warn or resources.warn
    store = Store(results)
    extra_metrics = [parse_metric(name) for name in metrics]
    if engine != "local" or worker_timeout is not None:
        resources.workers = _open_workers(
            systems, models, engine, worker_timeout, resources.options.device, warn
        )
    built = _build_systems(systems, models or {}, resources)
    _warn_shallow(built, extra_metrics, warn)
    names = task_names(tasks, find_local_tasks(store.root))
    cell_names = [(name, system.stage.text) for name in names for system in built]
    warn_once = cache(warn)

    def open_task(task: TaskLike, name: str) -> TaskRunner:
        with measure_step("load") as loading:
            loaded = _load(task, name, root=root, strict=strict)
            loaded = loaded if sample is None else loaded.sample(sample)
        store.sweep(loaded.name, loaded.suite)
        for notice in loaded.notices:
            warn_once(f"{loaded.name}: {notice}")
        return TaskRunner(loaded, store, loading.cost(), warn_once, force=force, strict=strict)

    runners = (open_task(task, name) for task, name in zip(tasks, names, strict=True))
    try:
        yield from track_status(_run_all(built, runners, extra_metrics), store.root, cell_names)
    finally:
        for system in built:
            if system.resources is not resources:  # the caller passed a System with its resources
                system.resources.close()


def _run_all(
    systems: Sequence[System], runners: Iterable[TaskRunner], extra_metrics: Sequence[Metric]
) -> Iterator[Result]:
    """Yield results task by task; if there are workers, they start BM25 on all tasks first.

    Before anything runs on a task, all of its results are planned, so that a missing model, server
    or file is reported at once. A result whose work failed on several workers is skipped; a
    WorkError after the other results reports these failures.
    """
    if any(system.resources.workers for system in systems):
        runners = list(runners)
        for runner in runners:
            for system in systems:
                runner.start_on_workers(system)
    failures = []
    for runner in runners:
        for system, planned in [(system, runner.plan(system)) for system in systems]:
            try:
                result = runner.result(system, planned, extra_metrics)
            except WorkError as problem:
                failures.append(f"{system} on {runner.task.name}: {problem}")
                continue
            yield result
    if failures:
        raise WorkError("\n".join(failures))


def _load(task: TaskLike, name: str, *, root: str | Path | None, strict: bool) -> Task:
    if isinstance(task, Task):
        return task if task.name == name else replace(task, name=name)
    if isinstance(task, TaskEntry):
        return load_entry(task, name=name, root=root, strict=strict)
    return load_task(task, name=name, root=root, strict=strict)


def _open_workers(
    systems: Sequence[object],
    models: Mapping[str, object] | None,
    engine: str,
    timeout: float | None,
    device: str | None,
    warn: Warn,
) -> Workers | None:
    """Open an engine's workers; warn about models given as objects, which workers cannot build."""
    from r2med.execution.processes import open_workers

    workers = open_workers(engine, timeout=timeout, device=device, warn=warn)
    if workers and (models or not all(isinstance(system, str) for system in systems)):
        warn(
            f"engine={workers.name}: models given as objects run in this process. Name them as "
            "'model:package.module:Class' to let workers build them."
        )
    return workers


def _as_list(values: object) -> list[Any]:
    """Return the values as a list; a single value becomes a list of one, even an iterable model."""
    many = isinstance(values, Iterable) and not isinstance(values, str) and not callable(values)
    return list(cast("Iterable[Any]", values)) if many else [values]


def _resolve_tasks(tasks: Sequence[TaskLike], local_tasks: Mapping[str, Path]) -> list[TaskLike]:
    """Replace each suite, and each text with several names, by its tasks."""
    resolved: list[TaskLike] = []
    for task in tasks:
        if not isinstance(task, TaskLike):
            raise UsageError(
                f"a {type(task).__name__} is not a task: expected a name such as 'demo/biology', a "
                "suite such as 'demo', the path of a folder, or a Task from r2med.load_task."
            )
        if isinstance(task, str):
            resolved.extend(resolve(task, local_tasks))
        else:
            resolved.append(task)
    return resolved


def _build_systems(
    systems: Sequence[object], models: Mapping[str, object], resources: Resources
) -> list[System]:
    """Build systems from specs and models; a System is used unchanged."""
    built = []
    for system in systems:
        if isinstance(system, System):
            built.append(system)
        elif isinstance(system, str):
            built.append(System.from_spec(system, resources, models=models))
        else:
            built.append(System.from_model(system, resources=resources))
    by_label: dict[str, System] = {}
    for system in built:  # two systems under one label would look like one in tables
        labelled = by_label.setdefault(system.label or str(system), system)
        if labelled.spec.unlabelled != system.spec.unlabelled:
            raise UsageError(f"label {system.label!r} is given twice: {labelled} and {system}.")
    return built


def _warn_shallow(systems: Sequence[System], metrics: Sequence[Metric], warn: Warn) -> None:
    """Warn about metrics whose cutoff is deeper than the lists of a system."""
    for system in systems:
        depth = system.stage.depth
        deeper = [metric for metric in metrics if metric.cutoff and metric.cutoff > depth]
        if deeper:
            names = ", ".join(map(str, deeper))
            warn(
                f"{system}: {names} is measured on lists of {depth} documents; documents below "
                f"rank {depth} count as not found. Ask for deeper lists with @, as in "
                f"bm25@{deeper[-1].cutoff}."
            )
