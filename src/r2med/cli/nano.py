"""`r2med nano`: build compact tasks, give them candidates, test their fidelity."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from r2med.cli import options
from r2med.cli.app import command_group
from r2med.cli.options import chosen, refuse_unread
from r2med.errors import UsageError
from r2med.report.console import answer, notice

nano = command_group(
    help="Build Nano tasks, add candidates, check that they are faithful.",
    no_args_is_help=True,
)


@nano.command()
def build(
    context: typer.Context,
    names: options.TaskArguments,
    out: Annotated[Path, options.out("The folder to make; each task becomes a split of it.")],
    queries: Annotated[
        int, typer.Option("--max-queries", help="The most queries of a task.")
    ] = 200,
    documents: Annotated[int, typer.Option(help="Size of the pool.")] = 10_000,
    fill: Annotated[
        str,
        typer.Option(help="Unjudged documents: source (as published), random or hard."),
    ] = "source",
    seed: Annotated[int, typer.Option(help="Decides the random fill.")] = 20260524,
    hard_from: Annotated[
        str, typer.Option(help="The retriever whose rankings give the hard fill.")
    ] = "bm25-nano",
    positives_cap: Annotated[
        int | None, typer.Option(help="The most positives of a query; no limit as published.")
    ] = None,
    layout: Annotated[str, typer.Option(help="both, hub or r2med.")] = "both",
    data_root: options.DataRoot = None,
    strict: options.Strict = False,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Make a Nano task of any task, by the published recipe.

    The same input gives the same bytes.
    """
    from r2med.nano.building import LAYOUTS
    from r2med.nano.building import build as build_folder
    from r2med.nano.folder import check_free, task_group
    from r2med.nano.pool import FILLS, Recipe

    for of_fill, option in (("random", "seed"), ("hard", "hard_from")):
        if fill != of_fill:
            refuse_unread(context, f"with --fill {fill}", option)
    recipe = Recipe(
        queries, documents, chosen(fill, FILLS, "--fill"), seed, hard_from, positives_cap
    )
    form = chosen(layout, LAYOUTS, "--layout")
    check_free(out, force=force)
    tasks = list(task_group(",".join(names)).load(data_root))
    built = build_folder(tasks, out, recipe, layout=form, force=force, strict=strict, tell=notice)
    facts, lines = [], []
    for one in built:
        report = one.pool.report
        facts.append(
            {
                "split": one.split,
                "folder": str(one.folder),
                "source": one.source.name,
                "report": asdict(report),
                "notices": list(one.notices),
            }
        )
        lines.append(
            f"{one.split}: {report.queries:,} queries, {report.documents:,} documents "
            f"({report.positive_documents:,} positive, {report.judged_negative_documents:,} judged "
            f"non-positive, {report.fill_documents:,} fill), {report.positives:,} positives"
        )
    lines.append(f"written to {out}; next: r2med nano candidates {out}")
    answer(facts, *lines, as_json=as_json)


@nano.command()
def candidates(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `nano build` made.")],
    dense: options.Dense = "harrier",
    force: options.Force = False,
    as_json: options.Json = False,
    engine: options.Engine = "local",
    worker_timeout: options.WorkerTimeout = None,
) -> None:
    """Add the bm25, dense and reranking_hybrid subsets, as published.

    Top 500 of each member; reciprocal rank fusion with k = 100, cut at 100;
    where those hold no positive, one is appended at rank 101.
    """
    from r2med.nano.building import add_candidates

    conditions = options.conditions(context.params)
    made = add_candidates(folder, dense, force=force, conditions=conditions)
    facts = {
        split: {
            "bm25": len(lists.bm25),
            lists.dense_config: len(lists.dense),
            "reranking_hybrid": len(lists.hybrid),
            "safeguards": dict(lists.safeguards),
        }
        for split, lists in made.items()
    }
    lines = [
        f"{split}: bm25, {lists.dense_config} and reranking_hybrid for {len(lists.hybrid):,} "
        f"queries; {len(lists.safeguards):,} with a safeguard at rank 101"
        for split, lists in made.items()
    ]
    answer(facts, *lines, f"next: r2med tasks profile {folder}", as_json=as_json)


@nano.command()
def fidelity(
    full: Annotated[str, typer.Argument(metavar="TASK", help="The full task, as in results.")],
    nano_task: Annotated[
        str | None,
        typer.Argument(metavar="[NANO]", help="Its Nano form; a registered task knows its own."),
    ] = None,
    metric: options.Metric = options.METRIC,
    results: options.Results = options.RESULTS,
    resamples: options.Resamples = None,
    as_json: options.Json = False,
) -> None:
    """Do systems rank alike on a full task and its Nano form?

    Kendall's tau and Spearman's rho over all systems with stored results on
    both, with bootstrap intervals over queries.
    """
    from r2med.measure import parse_metric
    from r2med.nano.fidelity import fidelity as compare
    from r2med.report.profiles import fidelity_tables
    from r2med.results.lookup import stored_results

    stored = stored_results(results, notice)
    tasks = {result.task for result in stored}
    names = [_as_stored(name, tasks) for name in _fidelity_names(full, nano_task)]
    outcome = compare(
        names[0],
        names[1],
        stored,
        metric=str(parse_metric(metric)),
        resamples=resamples or 1_000,
    )
    answer(asdict(outcome), *fidelity_tables(outcome), as_json=as_json)


def _as_stored(name: str, tasks: set[str]) -> str:
    """The name that results have for a folder: with its one split, or without."""
    folder = name.partition("#")[0]
    alike = [task for task in tasks if task.partition("#")[0] == folder]
    return alike[0] if name not in tasks and len(alike) == 1 else name


def _fidelity_names(full: str, nano_task: str | None) -> tuple[str, str]:
    """Names as results have them: of a task, of a folder, or as given."""
    from r2med.tasks.load import task_names
    from r2med.tasks.registry import find_suite

    def stored_name(text: str) -> str:
        try:
            return task_names([text])[0]
        except UsageError:
            return text

    name = stored_name(full)
    if nano_task is not None:
        return name, stored_name(nano_task)
    for entry in find_suite("nano").entries:
        if entry.source == name:
            return name, entry.name
    raise UsageError(
        f"{full} has no registered Nano form: name yours, as in "
        f"r2med nano fidelity {full} 'DIR#SPLIT'."
    )
