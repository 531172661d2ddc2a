"""`r2med diagnose`: where a system fails, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.cli import options
from r2med.cli.options import refuse_unread
from r2med.errors import UsageError, nearest
from r2med.report.console import notice
from r2med.report.formats import show
from r2med.storage import atomic_file

if TYPE_CHECKING:
    from r2med.tasks.task import Task


def diagnose(
    context: typer.Context,
    system: options.System,
    task: options.Task,
    query: Annotated[
        str | None, options.option("--query", help="Show the page of the query with this id.")
    ] = None,
    run: Annotated[
        bool,
        options.option("--run", help="With --query: run the query again; may call a model."),
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
    """Show where a system fails and why.

    Shows for each query the ranks of the positives, and for each missed positive a cause with the
    numbers that justify it; then slices, and the unjudged documents among the first ten. --query
    shows one query: its text, its expansion, its positives and the first ten documents.
    """
    import pyarrow.parquet as pq

    from r2med.evaluation.explain import explain
    from r2med.results.diagnosis.diagnose import diagnose as diagnosed

    if file is not None and file.suffix != ".parquet":
        raise UsageError(
            f"--out {file}: expected a .parquet file; --format csv prints the same rows."
        )
    of_page = ("table", "csv", "json") if query is not None else ()
    output_format = options.format_of(form, as_json, of_page, "the page of a query")
    if output_format in ("csv", "json"):
        refuse_unread(context, f"on {output_format.upper()}, which has everything", "limit")
    if query is None:
        of_query = ("run", "fresh", "llm_url", "prompts", "engine", "worker_timeout")
        refuse_unread(context, "without --query", *of_query)
        diagnosis = diagnosed(system, task, results=results, root=data_root, tell=notice)
        if file is not None:
            with atomic_file(file) as draft:
                pq.write_table(diagnosis.to_arrow(), draft)
        show(diagnosis, output_format, limit=limit)
        return
    refuse_unread(context, "with --query", "limit", "file")
    if not run:
        refuse_unread(context, "without --run", "fresh", "llm_url", "engine", "worker_timeout")
    with options.open_resources(context.params) as resources:
        page = explain(
            system,
            _holder(query, task, data_root, results),
            query,
            results=results,
            resources=resources,
            run=run,
        )
    show(page, output_format)


def _holder(query: str, name: str, root: Path | None, results: Path) -> Task:
    """Return the one task of this name; UsageError if there are several or it lacks the query."""
    from r2med.results.select import find_local_tasks
    from r2med.tasks.load import load_tasks

    task, *more_tasks = load_tasks(name, root=root, local_tasks=find_local_tasks(results))
    if more_tasks:
        raise UsageError(f"--query {query!r} shows one query: name one task with --task.")
    query_ids = task.queries.ids.to_pylist()
    if query not in query_ids:
        raise UsageError(f"--query {query!r}: no such query. {nearest(query, query_ids)}")
    return task
