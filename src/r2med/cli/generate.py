"""`r2med generate`: have a model write for a task's queries, and keep what it wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r2med.cli import options
from r2med.cli.options import refuse_unread
from r2med.errors import LimitError
from r2med.report.console import answer, echo, progress


def generate(
    context: typer.Context,
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD", help="hyde, query2doc, lamer, search-o1 or search-r1; options in []."
        ),
    ],
    llm: Annotated[
        str | None, typer.Option("--llm", help="The language model, e.g. smollm2 or gpt4.")
    ] = None,
    task: options.Task = "demo",
    data_root: options.DataRoot = None,
    folder: Annotated[Path, options.out("Where the files go.")] = Path("r2med-generations"),
    n: Annotated[int | None, typer.Option("--n", help="Samples for each query.")] = None,
    write_prompts: Annotated[
        Path | None,
        typer.Option(
            "--write-prompts", metavar="DIR", help="Only copy the method's prompts there, to edit."
        ),
    ] = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    engine: options.Engine = "local",
    worker_timeout: options.WorkerTimeout = None,
    llm_url: options.LlmUrl = None,
    prompts: options.Prompts = None,
    fresh: options.Fresh = False,
    max_tokens: options.MaxTokens = None,
    max_cost: options.MaxCost = None,
    concurrency: options.Concurrency = None,
) -> None:
    """Have a model write for the queries of tasks; nothing is searched or scored.

    Every answer is kept the moment it arrives: a run that was stopped goes on
    where it was. Files are OUT/<task>/<method>/<llm>/query_with_hydoc.jsonl;
    eval reads them when [generations=OUT] follows the model's name.
    """
    from r2med.engine.generating import generating, written
    from r2med.report.estimates import estimate_row, estimate_table, generation_table
    from r2med.tasks.load import load_tasks

    limits, where = ("max_tokens", "max_cost", "concurrency"), ("engine", "worker_timeout")
    if write_prompts is not None:
        others = ("llm", "task", "data_root", "folder", "n", "dry_run", "as_json", "llm_url")
        _write_prompts(context, method, write_prompts, *others, "prompts", "fresh", *limits, *where)
        return
    if dry_run:
        refuse_unread(context, "with --dry-run", "folder", *limits, *where)
    with progress() as bar:
        allowed = options.conditions(context.params, bar)
        stage = generating(method, llm, samples=n, conditions=allowed)
        writer = stage.expander.method
        if not writer.search:
            mode = f"on {writer.prompts}: it searches nothing, and the language model is asked "
            refuse_unread(context, f"{mode}from this process", *where)
        rows, tasks = [], list(load_tasks(task, root=data_root))
        stopped: LimitError | None = None
        try:
            for each in tasks:
                if dry_run:
                    estimate = stage.expander.live(each).estimate()
                    rows.append(estimate_row(stage.name, each.name, estimate))
                else:
                    rows.append(written(stage, each, folder))
        except LimitError as limit:
            stopped = LimitError(f"{limit}\n{len(rows)} of {len(tasks)} tasks are finished.")
        finally:
            allowed.close()
    table = estimate_table if dry_run else generation_table
    shown = [table(rows, f"{writer.prompts} by {writer.llm}")] if rows else []
    answer(rows, *shown, as_json=as_json)
    if stopped is not None:
        raise stopped


def _write_prompts(context: typer.Context, method: str, folder: Path, *unread: str) -> None:
    from r2med.engine.generating import find_method
    from r2med.expand.prompts import write_prompts

    name = find_method(method).name
    refuse_unread(context, "with --write-prompts", *unread)
    written = write_prompts(name, folder)
    echo(f"{len(written)} prompts written to {folder / name}; what was there is untouched.")
