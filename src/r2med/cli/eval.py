"""`r2med eval`: run systems on tasks and show their scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Context

from r2med.cli import options
from r2med.cli.options import refuse_unread
from r2med.cli.sweep import current_sweep
from r2med.errors import LimitError, UsageError, WorkError
from r2med.report.console import notice, notice_console, progress, result_line
from r2med.report.formats import show

if TYPE_CHECKING:
    from r2med.report.console import ProgressBar
    from r2med.report.formats import Format
    from r2med.results.record import Result
    from r2med.systems.build import System
    from r2med.tasks.registry import TaskEntry


def evaluate(
    context: Context,
    systems: options.AnySystems = None,
    task: options.Task = "demo",
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    metrics: options.Metrics = None,
    judgements: options.Judgements = "benchmark",
    by: options.By = "task",
    intervals: options.Intervals = False,
    twins: options.Twins = False,
    force: options.Force = False,
    sample: options.Sample = None,
    sweep: options.Sweep = None,
    strict: options.Strict = False,
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

    Finished results are reused. --force recomputes them; --fresh also ignores cached answers.
    """
    from r2med.measure.metrics import parse_metrics
    from r2med.report.scores import reused_notes, truncation_notes
    from r2med.results.evaluation import Evaluation
    from r2med.results.select import ResultSet
    from r2med.systems.build import System
    from r2med.tasks.registry import resolve

    output_format = options.format_of(form, as_json)
    metric_names = [str(metric) for metric in parse_metrics(metrics)] if metrics else []
    from_file = current_sweep(context)
    specs = [
        *(from_file.systems if from_file else ()),
        *(systems or ()),
    ]
    result_set = ResultSet.open(results, notice, samples=True)
    specs = [result_set.find_spec(spec) for spec in specs]
    specs += [f"model:{target}" for target in model or ()]
    if not specs:
        raise UsageError("no system is given. Name one, as in `r2med eval bm25`, or use --model.")
    options.refuse_unused_model_options(context, specs)
    if intervals:
        refuse_unread(context, "with --intervals", "by")
    if output_format in ("csv", "json"):
        unread = ("twins",) if by == "body-system" or intervals else ("by", "twins")
        refuse_unread(context, f"on {output_format.upper()}", *unread)
    tasks = resolve(task, result_set.local_tasks)
    with progress() as bar, options.open_resources(context.params, bar) as resources:
        finished, stopped = _run(
            [System.from_spec(spec, resources) for spec in specs],
            tasks,
            results,
            bar,
            root=data_root,
            metrics=metric_names,
            force=force or fresh,
            strict=strict,
            sample=sample,
        )
    if judgements != "benchmark":
        from r2med.judge.rescore import rescore_results

        finished = rescore_results(finished, judgements, results, root=data_root, warn=notice)
    if verbose:
        for line in (line for result in finished for line in _first_texts(result)):
            notice_console().print(line)
    if finished or stopped is None or output_format == "json":
        if by == "body-system" and finished:
            from r2med.results.body_systems import score_body_systems

            metric = metric_names[0] if metric_names else "ndcg@10"
            show(score_body_systems(finished, metric, root=data_root), output_format)
        elif intervals and finished:
            from r2med.results.score_intervals import score_intervals

            metric = metric_names[0] if metric_names else "ndcg@10"
            show(score_intervals(finished, metric), output_format)
        else:
            show(Evaluation(finished, metric_names), output_format, by=by)
        if twins and finished:
            _show_twins(finished, metric_names, output_format, data_root)
        for note in (*truncation_notes(finished), *reused_notes(finished)):
            notice(note)
    if stopped is not None:
        raise stopped


def _show_twins(
    results: Sequence[Result], metric_names: Sequence[str], output_format: Format, root: Path | None
) -> None:
    """Show how scores change if unjudged duplicates get the judgements of their judged copies."""
    from r2med.audit.twins import score_twins
    from r2med.results.select import ResultSet
    from r2med.tasks.load import load_tasks

    names = list(dict.fromkeys(result.task for result in results))
    local_tasks = ResultSet.open(results).local_tasks
    loaded = {
        name: task
        for name in names
        for task in load_tasks(name, root=root, local_tasks=local_tasks)
    }
    metric = metric_names[0] if metric_names else "ndcg@10"
    show(score_twins(results, loaded, metric), output_format)


def _run(
    systems: Sequence[System],
    tasks: Sequence[TaskEntry | Path],
    results: Path,
    bar: ProgressBar,
    **settings: Any,
) -> tuple[list[Result], LimitError | WorkError | None]:
    """Run the systems; return the finished results, and the error that stopped the others."""
    from r2med.evaluation.evaluate import each_result

    finished: list[Result] = []
    total = len(tasks) * len(systems)
    step = result_line(bar, total)
    try:
        for result in each_result(systems, tasks, results=results, warn=notice, **settings):
            finished.append(result)
            step(result)
    except (LimitError, WorkError) as problem:
        done = f"{len(finished)} of {total} results are finished and stored in {results}."
        return finished, type(problem)(f"{problem}\n{done}")
    except KeyboardInterrupt as stop:
        stop.add_note(
            f"{len(finished)} of {total} results are finished and stored in {results}; cached "
            "model answers and embeddings are kept. Run the same command again to continue."
        )
        raise
    return finished, None


def _first_texts(result: Result) -> Iterator[str]:
    """Yield lines that show the first text given to each encoder and the share that was cut."""
    from r2med.number_format import format_percent

    for stage, side, seen in result.record.model_inputs():
        truncated = seen.get("truncated")
        share = "" if truncated is None else f", {format_percent(truncated)} truncated"
        yield f"{result.task} · {stage} · first of {seen['texts']:,} {side}{share}:"
        yield f"  {seen['first']!r}"
