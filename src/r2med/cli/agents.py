"""`r2med agents`: import, score and export traces of agents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.cli import options
from r2med.cli.app import command_group
from r2med.errors import UsageError, plural
from r2med.report.console import echo, echo_json, notice
from r2med.report.formats import show

if TYPE_CHECKING:
    from r2med.tasks.task import Task

agents = command_group(
    default="list",
    help="Score agents that search: the evidence they saw and used, cost, answers, confidence.",
)

_SOURCE = (
    "an imported trace set, a folder of BrowseComp-Plus files, a log of `r2med serve`, generations "
    "of search-o1 or search-r1, or a stored system"
)
Source = Annotated[str, typer.Argument(metavar="SOURCE", help=f"Traces: {_SOURCE}.")]
Sources = Annotated[
    list[str],
    typer.Argument(metavar="SOURCE...", help=f"One or more sources of traces: {_SOURCE}."),
]


@agents.command("score")
def score_traces(
    sources: Sources,
    task: options.Task,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Score agents on a task, and compare each with the first one.

    Shows the share of the positives that an agent saw over all of its searches, when it saw the
    first one and whether it used it, searches and tokens per query, correctness of the answers, and
    the calibration of stated confidence. Means have 95 % intervals.
    """
    from r2med.agents.scoring import score_agents
    from r2med.agents.store import TraceStore

    loaded = _load_task(task, data_root, results)
    store = TraceStore(results)
    trace_sets = [store.find(source, loaded, warn=notice) for source in sources]
    if len({trace_set.name for trace_set in trace_sets}) < len(trace_sets):
        raise UsageError(
            "two sources have one name; import them under different names with "
            "`r2med agents import SOURCE --agent NAME`."
        )
    show(score_agents(loaded, trace_sets), options.format_of(form, as_json))


@agents.command("import")
def import_traces(
    source: Source,
    task: options.Task,
    agent: Annotated[
        str | None,
        options.option("--agent", help="Name of the agent; by default that of the folder."),
    ] = None,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Store the traces of an agent in the results folder, under a name.

    Malformed files and traces of other queries are reported and left out.
    """
    from r2med.agents.store import TraceStore
    from r2med.paths import slug

    loaded = _load_task(task, data_root, results)
    store = TraceStore(results)
    trace_set = store.find(source, loaded, warn=notice)
    chosen = agent or slug(trace_set.name)
    path = store.save(trace_set, loaded, chosen, force=force)
    counts = {
        "name": chosen,
        "task": loaded.name,
        "traces": len(trace_set.traces),
        "queries": len(trace_set.query_ids),
        "problems": len(trace_set.problems),
        "file": str(path),
    }
    if as_json:
        echo_json(counts)
        return
    traces = plural(len(trace_set.traces), "trace")
    queries = plural(len(loaded.queries), "query")
    echo(f"imported {chosen}: {traces} of {len(trace_set.query_ids)} of {queries} ({path})")
    notice(f"next: r2med agents score {chosen} --task {task}")


@agents.command("export")
def export_traces(
    source: Source,
    task: options.Task,
    folder: Annotated[Path, options.out("The folder to write to.")],
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    force: options.Force = False,
) -> None:
    """Write traces as BrowseComp-Plus files, one JSON file per trace."""
    from r2med.agents.browsecomp import write_results
    from r2med.agents.store import TraceStore
    from r2med.paths import require_empty

    loaded = _load_task(task, data_root, results)
    require_empty(folder, force=force)
    trace_set = TraceStore(results).find(source, loaded, warn=notice)
    count = write_results(trace_set.traces, folder, agent=trace_set.name, task=loaded)
    echo(f"wrote {plural(count, 'file')} to {folder}")


@agents.command("list")
def list_trace_sets(
    results: options.Results = options.RESULTS,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """List the imported trace sets of a results folder."""
    from r2med.agents.store import TraceStore

    stored = TraceStore(results).list_sets()
    output_format = options.format_of(form, as_json)
    if not stored.rows and output_format == "table":
        echo(f"No traces in {results}. Try: r2med agents import SOURCE --task TASK")
        return
    show(stored, output_format)


def _load_task(task: str, data_root: Path | None, results: Path) -> Task:
    from r2med.results.select import find_local_tasks
    from r2med.tasks.load import load_tasks

    loaded = list(load_tasks(task, root=data_root, local_tasks=find_local_tasks(results)))
    if len(loaded) != 1:
        raise UsageError(f"--task {task} names {len(loaded)} tasks, expected one.")
    return loaded[0]
