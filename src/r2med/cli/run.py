"""`r2med run` and `r2med reproduce`: the reference's command lines, and its published figures."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from r2med.cli import options
from r2med.cli.options import check_choice
from r2med.errors import UsageError, nearest
from r2med.report.console import notice_console, progress
from r2med.report.formats import show

_NEEDS = {
    "eval_retrieval": ("retriever_name",),
    "eval_reranker": ("retriever_name", "reranker_name"),
    "generate_hydoc": ("gar_method", "gar_llm"),
}


def run(
    context: typer.Context,
    mode: Annotated[
        str, options.option("--mode", help="eval_retrieval, eval_reranker or generate_hydoc.")
    ],
    task: options.Task,
    retriever_name: Annotated[
        str | None, options.option("--retriever_name", help="The first stage, e.g. bm25 or nv.")
    ] = None,
    reranker_name: Annotated[
        str | None,
        options.option("--reranker_name", help="bge-reranker, monobert or rankllama."),
    ] = None,
    recall_k: Annotated[
        int, options.option("--recall_k", min=1, help="How many documents are reranked.")
    ] = 10,
    gar_method: Annotated[
        str | None,
        options.option("--gar_method", help="hyde, query2doc, lamer, search-o1 or search-r1."),
    ] = None,
    gar_llm: Annotated[
        str | None, options.option("--gar_llm", help="The language model, e.g. gpt4.")
    ] = None,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    dry_run: Annotated[
        bool, options.option("--dry-run", help="Only print the equivalent command.")
    ] = False,
) -> None:
    """Run a command line of the reference scripts, and show the equivalent r2med command.

    The equivalent command goes to standard error, the scores to standard output.
    """
    for option in _NEEDS[check_choice(mode, tuple(_NEEDS), "--mode")]:
        if not context.params[option]:
            raise UsageError(f"--mode {mode} needs --{option}.")
    if bool(gar_method) != bool(gar_llm):
        lacking = "--gar_llm" if gar_method else "--gar_method"
        raise UsageError(f"{lacking} is missing: a method and a model go together.")
    command = ["r2med", "eval", str(retriever_name), "--task", task]
    if mode == "generate_hydoc":
        command[1:3] = ["generate", str(gar_method), "--llm", str(gar_llm)]
    elif mode == "eval_reranker":  # the reference's rerankers rank without expansion
        command[2] += f" | {reranker_name}@{recall_k}"
    elif gar_method:
        command[2] = f"{gar_method}:{gar_llm} | {retriever_name}"
    if command[1] == "eval" and results != options.RESULTS:
        command += ["--results", str(results)]
    command += ["--data-root", str(data_root)] if data_root else []
    _check_names(command[2])
    notice_console().print(f"$ {shlex.join(command)}", soft_wrap=True)
    if not dry_run:
        from r2med.cli.app import app

        app(command[1:], prog_name="r2med", standalone_mode=False)


def reproduce(
    context: typer.Context,
    system: options.System,
    task: options.Task = "full",
    metric: options.Metric = options.METRIC,
    results: options.Results = options.RESULTS,
    data_root: options.DataRoot = None,
    form: options.Format = None,
    as_json: options.Json = False,
    device: options.Device = None,
    engine: options.Engine = "local",
    worker_timeout: options.WorkerTimeout = None,
) -> None:
    """Run a published system and compare each task's score with the published one.

    Exits with 1 if a task could not be run, and with 4 if a score is different from the published.
    """
    from r2med.evaluation.reproduce import reproduce as reproduced
    from r2med.tasks.registry import resolve

    output_format = options.format_of(form, as_json)
    with progress() as bar, options.open_resources(context.params, bar) as resources:
        line = bar.add_task("reproducing", total=len(resolve(task)))
        reproduction = reproduced(
            system,
            task,
            metric=metric,
            results=results,
            root=data_root,
            resources=resources,
            begin=lambda name: bar.update(line, advance=1, description=f"{name} · {system}"),
        )
    show(reproduction, output_format)
    if any(row.missing for row in reproduction.tasks):
        raise typer.Exit(1)
    if any(row.verdict == "different" for row in reproduction.tasks):
        raise typer.Exit(4)


def _check_names(spec: str) -> None:
    """Raise UsageError for a spec with an unknown retriever, reranker or method."""
    from r2med.systems.registry import entries, parts_of

    for unit, entry in parts_of(spec):
        if entry is None:
            raise UsageError(f"{unit.name!r} is not a known name. {nearest(unit.name, entries())}")
