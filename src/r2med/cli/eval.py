"""`r2med eval`: run systems on tasks, also those that a file lists, and show their scores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Context

from r2med.cli import options
from r2med.cli.app import usage_message
from r2med.cli.options import is_typed, refuse_unread
from r2med.errors import DataError, LimitError, UsageError, WorkError, nearest
from r2med.report.console import answer, notice, notice_console, progress, result_line
from r2med.report.formats import show
from r2med.settings import read_toml

if TYPE_CHECKING:
    from rich.progress import Progress

    from r2med.results.record import Result
    from r2med.systems.build import System
    from r2med.tasks.registry import TaskEntry
    from r2med.tasks.task import Task

#: Stands for the server of a language model where nothing is asked.
_NOBODY = "http://localhost/v1"
_NO_MODEL = "No part of these systems runs a model."


def evaluate(
    context: Context,
    systems: options.AnySystems = None,
    task: options.Task = "demo",
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    metrics: options.Metrics = None,
    by: options.By = "task",
    force: options.Force = False,
    sample: options.Sample = None,
    sweep: options.Sweep = None,
    strict: options.Strict = False,
    dry_run: options.DryRun = False,
    tokens_per_second: options.TokensPerSecond = None,
    price: options.Price = None,
    passages: options.Passages = None,
    vector_width: options.VectorWidth = None,
    form: options.Format = None,
    as_json: options.Json = False,
    model: options.Model = None,
    trust_remote_code: options.TrustRemoteCode = False,
    device: options.Device = None,
    batch_size: options.BatchSize = None,
    engine: options.Engine = "local",
    worker_timeout: options.WorkerTimeout = None,
    verbose: options.Verbose = False,
    llm_url: options.LlmUrl = None,
    prompts: options.Prompts = None,
    fresh: options.Fresh = False,
    max_tokens: options.MaxTokens = None,
    max_cost: options.MaxCost = None,
    concurrency: options.Concurrency = None,
) -> None:
    """Run systems on tasks and show their scores.

    Finished results are reused; --force runs again, --fresh also asks models again.
    """
    if sweep is not None:
        evaluate(**_with_sweep(context, sweep, locals()))
        return
    from r2med.measure.metrics import parse_metrics
    from r2med.report.scores import reused_notes, truncation_notes
    from r2med.results.evaluation import Evaluation
    from r2med.results.lookup import own_tasks, written_out
    from r2med.systems.build import System
    from r2med.tasks.load import load_tasks
    from r2med.tasks.registry import resolve

    shown = options.format_of(form, as_json, ("table", "json") if dry_run else (), "an estimate")
    if not dry_run:
        refuse_unread(context, "without --dry-run", "tokens_per_second")
    if not tokens_per_second:
        mode = "without --dry-run --tokens-per-second N"
        refuse_unread(context, mode, "price", "passages", "vector_width")
    asked = [str(metric) for metric in parse_metrics(metrics)] if metrics else []
    named = [written_out(system, results) for system in systems or ()]
    named += [f"model:{target}" for target in model or ()]
    if not named:
        raise UsageError("no system is given. Name one, as in `r2med eval bm25`, or use --model.")
    options.refuse_idle(context, named)
    if dry_run:
        unread = ("metrics", "by", "force", "strict", "verbose", "max_tokens", "max_cost")
        workers = ("concurrency", "engine", "worker_timeout", "batch_size")
        refuse_unread(context, "with --dry-run", *unread, *workers)
    if shown in ("csv", "json"):
        refuse_unread(context, f"on {shown.upper()}", "by")
    own = own_tasks(results)
    tasks = resolve(task, own)
    with progress() as bar:
        server = llm_url or (_NOBODY if tokens_per_second else None)
        allowed = options.conditions({**context.params, "llm_url": server}, bar)
        built = [System.from_spec(system, allowed) for system in named]
        if tokens_per_second:
            sizes, pace = (data_root, passages, vector_width), (tokens_per_second, price)
            _reckon(built, tasks, *sizes, *pace, as_json=shown == "json")
            return
        if dry_run:
            _estimate(built, load_tasks(tasks, root=data_root, own=own), as_json=shown == "json")
            return
        finished, stopped = _run(
            built,
            tasks,
            results,
            bar,
            root=data_root,
            metrics=asked,
            force=force or fresh,
            strict=strict,
            sample=sample,
        )
    if verbose:
        for line in (line for result in finished for line in _seen_texts(result)):
            notice_console().print(line)
    if finished or stopped is None or shown == "json":
        show(Evaluation(finished, asked), shown, by=by)
        for note in (*truncation_notes(finished), *reused_notes(finished)):
            notice(note)
    if stopped is not None:
        raise stopped


def _run(
    systems: Sequence[System],
    tasks: Sequence[TaskEntry | Path],
    results: Path,
    bar: Progress,
    **settings: Any,
) -> tuple[list[Result], LimitError | WorkError | None]:
    """The finished results, and what kept the others from being finished, if something did."""
    from r2med.engine.evaluate import each_result

    finished: list[Result] = []
    total = len(tasks) * len(systems)
    step = result_line(bar, total)
    names = [task if isinstance(task, Path) else task.name for task in tasks]
    try:
        for result in each_result(systems, names, results=results, tell=notice, **settings):
            finished.append(result)
            step(result)
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


def _estimate(systems: Sequence[System], tasks: Iterable[Task], *, as_json: bool) -> None:
    """Show what every part that asks a model would use; nothing is asked or stored."""
    from r2med.engine.estimating import estimates
    from r2med.report.estimates import estimate_row, estimate_table

    parts: dict[str, dict[str, dict[str, object]]] = {}
    for task in tasks:
        for system in systems:
            for part, estimate in estimates(system.stage, task):
                row = estimate_row(part, task.name, estimate)
                parts.setdefault(part, {})[task.name] = row
    tables = [estimate_table([*rows.values()], part) for part, rows in parts.items()]
    every = [row for rows in parts.values() for row in rows.values()]
    answer(every, *tables or ["No part of these systems asks a paid model."], as_json=as_json)


def _reckon(
    systems: Sequence[System],
    tasks: Sequence[TaskEntry | Path],
    root: Path | None,
    passages: int | None,
    width: int | None,
    speed: float,
    price: float | None,
    *,
    as_json: bool,
) -> None:
    """Show the work of all models by the sizes of the tasks, those published or those of data here.

    Nothing is run.
    """
    from r2med.engine.estimating import Sizes, loads
    from r2med.report.estimates import load_row, load_table
    from r2med.tasks.load import load_tasks

    read = load_tasks([t for t in tasks if isinstance(t, Path) or not t.counts], root=root)
    sizes = [
        Sizes.of(next(read) if isinstance(task, Path) or not task.counts else task, passages)
        for task in tasks
    ]
    every = {
        (load.part, load.stage, load.task): load_row(load, speed, price)
        for each in sizes
        for system in systems
        for load in loads(system.stage, each, width)
    }
    rows = list(every.values())
    table = load_table(rows, speed, price) if rows else _NO_MODEL
    answer(rows, table, as_json=as_json)


def _seen_texts(result: Result) -> Iterator[str]:
    """Lines that show what each encoder of a system really saw, and how much was cut off."""
    from r2med.report.table import percent

    for part, side, seen in result.record.seen():
        cut = seen.get("truncated")
        share = "" if cut is None else f", {percent(cut)} truncated"
        yield f"{result.task} · {part} · first of {seen['texts']:,} {side}{share}:"
        yield f"  {seen['first']!r}"


def _with_sweep(context: Context, path: Path, typed: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a file, read as the command line's are; what is typed comes first.

    Systems of both are taken, the file's first:

        systems = ["bm25", "tuned-{k1}=bm25[k1={k1}]"]
        tasks = ["demo"]
        [values]
        k1 = [0.9, 1.2, 1.5]
        [options]
        metrics = "ndcg@10,recall@100"
    """
    settings = _read_sweep(path)
    systems = [text for each in settings["systems"] for text in _filled(each, settings, path)]
    words = ["--task", ",".join(settings["tasks"])] if settings["tasks"] else []
    parameters: list[Any] = [each for each in context.command.params if hasattr(each, "is_flag")]
    switches = {name for each in parameters for name in each.opts if each.is_flag}
    repeated = {name for each in parameters for name in each.opts if each.multiple}
    for option, value in settings["options"].items():
        switch, several = f"--{option}" in switches, isinstance(value, list)
        if isinstance(value, bool) != switch or (several and f"--{option}" not in repeated):
            expected = "true or false" if switch else "one value, as on the command line"
            raise UsageError(f"{path}: options.{option} is {value!r}, expected {expected}.")
        if option == "from":
            raise UsageError(f"{path}: options.from: a file names no other one.")
        each_of = value if several else [value]
        words += [f"--{option}"] * value if switch else [f"--{option}={each}" for each in each_of]
    try:
        with context.command.make_context(context.command_path, words) as read:
            values = {
                name: typed[name] if is_typed(context, name) or not is_typed(read, name) else value
                for name, value in read.params.items()
            }
    except Exception as problem:
        if (why := usage_message(problem)) is None:
            raise
        raise UsageError(f"{path}: {why}") from None
    values |= {"context": context, "sweep": None}
    values["systems"] = [*systems, *(typed["systems"] or [])]
    context.params.update(values)
    return values


def _read_sweep(path: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {"systems": [], "tasks": [], "values": {}, "options": {}}
    for key, value in read_toml(path).items():
        if key not in settings:
            raise UsageError(f"{path}: {key!r} is not known. {nearest(key, settings)}")
        table = isinstance(settings[key], dict)
        texts = isinstance(value, list) and all(isinstance(each, str) for each in value)
        if not (isinstance(value, dict) if table else texts):
            expected = f"a table, [{key}]" if table else "a list of texts"
            raise DataError(f"{path}: {key} is {value!r}, expected {expected}.")
        settings[key] = value
    return settings


def _filled(system: str, settings: Mapping[str, Any], path: Path) -> list[str]:
    """The system once for every combination of the values that it names in braces."""
    texts = [system]
    for name in dict.fromkeys(re.findall(r"\{(\w+)\}", system)):
        values = settings["values"].get(name)
        if not isinstance(values, list) or not values:
            raise UsageError(
                f"{path}: systems holds {{{name}}}, in {system!r}; values.{name} is {values!r}, "
                "expected a list."
            )
        texts = [text.replace(f"{{{name}}}", str(value)) for text in texts for value in values]
    return texts
