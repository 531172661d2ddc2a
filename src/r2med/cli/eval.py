"""`r2med eval`: run systems on tasks and show their scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Context

from r2med.cli.options import (
    GROUPINGS,
    RESULTS,
    AnySystems,
    BatchSize,
    By,
    Concurrency,
    DataRoot,
    Device,
    DryRun,
    Engine,
    Force,
    Format,
    Fresh,
    Json,
    LlmUrl,
    MaxCost,
    MaxTokens,
    Metrics,
    Model,
    Passages,
    Price,
    Prompts,
    Results,
    Sample,
    Strict,
    Sweep,
    Task,
    TokensPerSecond,
    TrustRemoteCode,
    VectorWidth,
    Verbose,
    WorkerTimeout,
    chosen,
    conditions,
    format_of,
    refuse_idle,
    refuse_unread,
    with_own_models,
)
from r2med.cli.sweep import with_sweep
from r2med.errors import LimitError, UsageError, WorkError

if TYPE_CHECKING:
    from rich.progress import Progress

    from r2med.engine.estimating import Sizes
    from r2med.report.load_table import Pace
    from r2med.results.record import Result
    from r2med.systems.build import System

#: Stands for the server of a language model where nothing is asked.
_NOBODY = "http://localhost/v1"


def evaluate(
    context: Context,
    systems: AnySystems = None,
    task: Task = "demo",
    data_root: DataRoot = None,
    results: Results = RESULTS,
    metrics: Metrics = None,
    by: By = "task",
    force: Force = False,
    sample: Sample = None,
    sweep: Sweep = None,
    strict: Strict = False,
    dry_run: DryRun = False,
    tokens_per_second: TokensPerSecond = None,
    price: Price = None,
    passages: Passages = None,
    vector_width: VectorWidth = None,
    form: Format = None,
    as_json: Json = False,
    model: Model = None,
    trust_remote_code: TrustRemoteCode = False,
    device: Device = None,
    batch_size: BatchSize = None,
    engine: Engine = "local",
    worker_timeout: WorkerTimeout = None,
    verbose: Verbose = False,
    llm_url: LlmUrl = None,
    prompts: Prompts = None,
    fresh: Fresh = False,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    concurrency: Concurrency = None,
) -> None:
    """Run systems on tasks and show their scores.

    Finished results are reused; --force runs again, --fresh also asks models again.
    """
    if sweep is not None:
        evaluate(**with_sweep(context, sweep, evaluate, locals()))
        return
    from r2med.measure.metrics import parse_metrics
    from r2med.report.console import notice_console, progress
    from r2med.report.formats import show
    from r2med.report.load_table import Pace
    from r2med.results.evaluation import Evaluation
    from r2med.systems.build import System

    shown = format_of(form, as_json, ("table", "json") if dry_run else (), "an estimate")
    grouping = chosen(by, GROUPINGS, "--by")
    if tokens_per_second and not dry_run:
        raise UsageError("--tokens-per-second goes with --dry-run: nothing is run at that pace.")
    if not tokens_per_second and (price, passages, vector_width) != (None, None, None):
        raise UsageError(
            "--price, --passages and --vector-width go with --dry-run --tokens-per-second N."
        )
    asked = [str(metric) for metric in parse_metrics(metrics)] if metrics else []
    _refuse_tasks(systems or ())
    named = with_own_models(systems, model)
    refuse_idle(context, named)
    if dry_run:
        unread = ("metrics", "by", "force", "strict", "verbose", "max_tokens", "max_cost")
        workers = ("concurrency", "engine", "worker_timeout", "batch_size")
        refuse_unread(context, "with --dry-run", *unread, *workers)
    if shown in ("csv", "json"):
        refuse_unread(context, f"on {shown.upper()}", "by")
    with progress() as bar:
        allowed = conditions(
            bar,
            strict=strict,
            trust_remote_code=trust_remote_code,
            device=device,
            llm_url=llm_url or (_NOBODY if tokens_per_second else None),
            prompts=prompts,
            fresh=fresh,
            max_tokens=max_tokens,
            max_cost=max_cost,
            concurrency=concurrency,
            engine=engine,
            worker_timeout=worker_timeout,
            batch_size=batch_size,
        )
        built = [System.from_spec(system, allowed) for system in named]
        if tokens_per_second:
            sizes = _sizes(task, data_root, results, passages)
            pace = Pace(tokens_per_second, price)
            _reckon(built, sizes, vector_width, pace, as_json=shown == "json")
            return
        if dry_run:
            _estimate(built, task, data_root, results, as_json=shown == "json")
            return
        finished, stopped = _run(
            built,
            task,
            data_root,
            results,
            asked,
            bar,
            force=force or fresh,
            strict=strict,
            sample=sample,
        )
    if verbose:
        for result in finished:
            for line in _seen_texts(result):
                notice_console().print(line)
    if finished or stopped is None or shown == "json":
        show(Evaluation(finished, asked), shown, by=grouping)
    if stopped is not None:
        raise stopped


def _refuse_tasks(systems: Sequence[str]) -> None:
    """A folder of data among the systems is meant as a second task."""
    from r2med.home import user_path
    from r2med.tasks.reading.source import holds_task

    for text in systems:
        folder = user_path(text) if text.startswith((".", "/", "~")) else None
        if folder and folder.is_dir() and holds_task(folder):
            raise UsageError(
                f"{text} holds a task, not a system. Several tasks are parted by commas: "
                f"--task FIRST,{text}"
            )


def _run(
    systems: Sequence[System],
    tasks: str,
    root: Path | None,
    results: Path,
    metrics: list[str],
    bar: Progress,
    *,
    force: bool,
    strict: bool,
    sample: int | None,
) -> tuple[list[Result], LimitError | WorkError | None]:
    """The finished results, and what kept the others from being finished, if something did."""
    from r2med.engine.evaluate import each_result
    from r2med.report.console import notice
    from r2med.results.lookup import own_tasks
    from r2med.tasks.registry import resolve

    found = resolve(tasks, own_tasks(results))
    wanted = [item if isinstance(item, Path) else item.name for item in found]
    finished: list[Result] = []
    total = len(wanted) * len(systems)
    line = bar.add_task("evaluating", total=total)
    try:
        for result in each_result(
            systems,
            wanted,
            root=root,
            results=results,
            metrics=metrics,
            force=force,
            strict=strict,
            sample=sample,
            tell=notice,
        ):
            finished.append(result)
            bar.update(line, advance=1, description=f"{result.task} · {result.system}")
    except (LimitError, WorkError) as problem:
        done = f"{len(finished)} of {total} results are finished and stored in {results}."
        return finished, type(problem)(f"{problem}\n{done}")
    except KeyboardInterrupt as stop:
        stop.add_note(
            f"{len(finished)} of {total} results are finished and stored in {results}; answers of "
            "models and vectors made so far are kept too. Run the same command again to go on."
        )
        raise
    return finished, None


def _estimate(
    systems: Sequence[System], tasks: str, root: Path | None, results: Path, *, as_json: bool
) -> None:
    """Show what every part that asks a model would use; nothing is asked or stored."""
    from r2med.engine.estimating import estimates
    from r2med.report.console import console, echo, echo_json
    from r2med.report.generation_table import estimate_row, estimate_table
    from r2med.results.lookup import own_tasks
    from r2med.tasks.load import load_tasks

    unique: dict[tuple[str, str], dict[str, object]] = {}
    for task in load_tasks(tasks, root=root, own=own_tasks(results)):
        for system in systems:
            for paid in estimates(system.part, task):
                unique[paid.part, task.name] = estimate_row(task.name, paid)
    rows = list(unique.values())
    if as_json:
        echo_json(rows)
    elif not rows:
        echo("No part of these systems asks a paid model.")
    else:
        for part in dict.fromkeys(str(row["part"]) for row in rows):
            console().print(estimate_table([row for row in rows if row["part"] == part], part))


def _sizes(tasks: str, root: Path | None, results: Path, passages: int | None) -> list[Sizes]:
    """The sizes of tasks: as published where they are, else of the data, which must be here."""
    from r2med.engine.estimating import Sizes
    from r2med.results.lookup import own_tasks
    from r2med.tasks.load import load_task
    from r2med.tasks.registry import TaskEntry, resolve

    return [
        Sizes.of(
            each
            if isinstance(each, TaskEntry) and each.counts
            else load_task(each if isinstance(each, Path) else each.name, root=root),
            passages,
        )
        for each in resolve(tasks, own_tasks(results))
    ]


def _reckon(
    systems: Sequence[System],
    sizes: Sequence[Sizes],
    width: int | None,
    pace: Pace,
    *,
    as_json: bool,
) -> None:
    """Show the work of all models as published figures suggest; nothing is loaded or run."""
    from r2med.engine.estimating import loads
    from r2med.report.console import console, echo, echo_json
    from r2med.report.load_table import load_rows, load_table

    every = [
        load for each in sizes for system in systems for load in loads(system.part, each, width)
    ]
    unique = list({(load.part, load.stage, load.task): load for load in every}.values())
    if as_json:
        echo_json(load_rows(unique, pace))
    elif not unique:
        echo("No part of these systems runs a model.")
    else:
        console().print(load_table(unique, pace))


def _seen_texts(result: Result) -> Iterator[str]:
    """Lines that show what each encoder of a system really saw, and how much was cut off."""
    for part, facts in result.record.facts.items():
        for side in ("documents", "queries", "generated"):
            seen = facts.get(side)
            if isinstance(seen, Mapping) and "first" in seen:
                cut = seen.get("truncated")
                share = "" if cut is None else f", {cut:.1%} truncated"
                yield f"{result.task} · {part} · first of {seen['texts']:,} {side}{share}:"
                yield f"  {seen['first']!r}"
