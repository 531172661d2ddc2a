"""`r2med diagnose`: where a system fails, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.atomic import atomic_file
from r2med.cli import options
from r2med.cli.options import refuse_unread
from r2med.errors import UsageError, nearest
from r2med.report.console import notice
from r2med.report.formats import show

if TYPE_CHECKING:
    from r2med.tasks.task import Task


def diagnose(
    context: typer.Context,
    system: options.System,
    task: options.Task,
    query: Annotated[
        str | None, typer.Option("--query", help="Show one query's whole page, by its id.")
    ] = None,
    run: Annotated[
        bool,
        typer.Option("--run", help="With --query: expand and search anew; may ask a model."),
    ] = False,
    limit: options.Limit = 20,
    file: Annotated[
        Path | None, options.out("Write one row per positive to this .parquet file.")
    ] = None,
    results: options.Results = options.RESULTS,
    data_root: options.DataRoot = None,
    engine: options.Engine = "local",
    worker_timeout: options.WorkerTimeout = None,
    llm_url: options.LlmUrl = None,
    prompts: options.Prompts = None,
    fresh: options.Fresh = False,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Say where a system fails and why.

    For each query the rank of its positives, and for each missed one a cause with the numbers
    that justify it; then slices, and the unjudged documents among the first ten. --query shows one
    query: its text, what was generated for it, its positives and the first ten documents.
    """
    import pyarrow.parquet as pq

    from r2med.engine.explain import explain
    from r2med.results.diagnosis.diagnose import diagnose as diagnosed
    from r2med.results.lookup import stored_results

    if file is not None and file.suffix != ".parquet":
        raise UsageError(
            f"--out {file}: expected a .parquet file; --format csv prints the same rows."
        )
    of_page = ("table", "csv", "json") if query is not None else ()
    shown = options.format_of(form, as_json, of_page, "the page of a query")
    if shown in ("csv", "json"):
        refuse_unread(context, f"on {shown.upper()}, which has everything", "limit")
    if query is None:
        of_query = ("run", "fresh", "llm_url", "prompts", "engine", "worker_timeout")
        refuse_unread(context, "without --query", *of_query)
        diagnosis = diagnosed(system, task, results=results, root=data_root, tell=notice)
        if file is not None:
            with atomic_file(file) as draft:
                pq.write_table(diagnosis.to_arrow(), draft)
        show(diagnosis, shown, limit=limit)
        return
    refuse_unread(context, "with --query", "limit", "file")
    if not run:
        refuse_unread(context, "without --run", "fresh", "llm_url", "engine", "worker_timeout")
    page = explain(
        system,
        _holder(query, task, data_root, results),
        query,
        results=stored_results(results, notice),
        folder=results,
        conditions=options.conditions(context.params),
        run=run,
    )
    show(page, shown)


def _holder(query: str, name: str, root: Path | None, results: Path) -> Task:
    """The task of this name, which has a query of this id."""
    from r2med.results.lookup import own_tasks
    from r2med.tasks.load import load_tasks

    task, *others = load_tasks(name, root=root, own=own_tasks(results))
    if others:
        raise UsageError(f"--query {query!r} shows one query: name one task with --task.")
    known = task.queries.ids.to_pylist()
    if query not in known:
        raise UsageError(f"--query {query!r}: no such query. {nearest(query, known)}")
    return task
