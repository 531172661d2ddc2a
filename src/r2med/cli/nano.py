"""`r2med nano`: build compact tasks, give them candidates, test their fidelity."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from r2med.cli import options
from r2med.cli.app import command_group
from r2med.cli.options import refuse_unread
from r2med.errors import MissingError, OfflineError, UsageError
from r2med.report.console import answer, notice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from r2med.nano.candidates import CandidateList
    from r2med.results.record import Result

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
        int, options.option("--max-queries", help="Maximum number of queries per task.")
    ] = 200,
    documents: Annotated[int, options.option(help="Documents per task.")] = 10_000,
    fill: Annotated[
        Literal["source", "random", "hard"],
        options.option(help="Unjudged documents: source (as published), random or hard."),
    ] = "source",
    seed: Annotated[int, options.option(help="Seed of the random fill.")] = 20260524,
    data_root: options.DataRoot = None,
    strict: options.Strict = False,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Make a Nano task of any task, by the published recipe.

    The same input gives the same bytes.
    """
    from r2med.nano.folder import build as build_folder
    from r2med.nano.folder import task_group
    from r2med.nano.pool import Recipe

    if fill != "random":
        refuse_unread(context, f"with --fill {fill}", "seed")
    recipe = Recipe(queries, documents, fill, seed)
    _, tasks = task_group(names, data_root)
    built = build_folder(tasks, out, recipe, force=force, strict=strict, warn=notice)
    facts, lines = [], []
    for split, task in built.items():
        facts.append({"split": split, "folder": str(out), **asdict(task)})
        lines.append(
            "{}: {queries:,} queries, {documents:,} documents ({positive_documents:,} positive, "
            "{judged_negative_documents:,} judged non-positive, {fill_documents:,} fill), "
            "{positives:,} positives".format(split, **task.report)
        )
    lines.append(f"written to {out}; next: r2med nano candidates {out}")
    answer(facts, *lines, as_json=as_json)


@nano.command()
def candidates(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder that `r2med nano build` made.")
    ],
    dense: options.Dense = "harrier",
    force: options.Force = False,
    as_json: options.Json = False,
    engine: options.Engine = "local",
    worker_timeout: options.WorkerTimeout = None,
) -> None:
    """Add the bm25, dense and reranking_hybrid subsets, as published.

    reranking_hybrid fuses the top 500 of bm25 and dense by reciprocal rank with k = 100, and keeps
    100 documents. If these contain no positive, one is appended at rank 101.
    """
    with options.open_resources(context.params) as resources:
        lists_by_split = _add_candidates(folder, dense, force=force, resources=resources)
    facts, lines = {}, []
    for split, lists in lists_by_split.items():
        _, encoder, hybrid = lists
        facts[split] = {
            **{subset.config: len(subset.run) for subset in lists},
            "safeguards": dict(hybrid.safeguards),
        }
        lines.append(
            f"{split}: bm25, {encoder.config} and reranking_hybrid for {len(hybrid.run):,} "
            f"queries; {len(hybrid.safeguards):,} with a safeguard at rank 101"
        )
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
    from r2med.results.select import ResultSet
    from r2med.tasks.registry import find_suite

    stored = ResultSet.open(results, notice).results
    name, metric = _as_stored(full, stored), str(parse_metric(metric))
    nano_names = [entry.name for entry in find_suite("nano").entries if entry.source == name]
    if nano_task is None and not nano_names:
        raise UsageError(
            f"{full} has no registered Nano form: name yours, as in "
            f"r2med nano fidelity {full} 'DIR#SPLIT'."
        )
    nano_name = nano_names[0] if nano_task is None else _as_stored(nano_task, stored)
    outcome = compare(name, nano_name, stored, metric=metric, resamples=resamples or 1_000)
    answer(asdict(outcome), *fidelity_tables(outcome), as_json=as_json)


def _as_stored(text: str, stored: Sequence[Result]) -> str:
    """Return the name of a task in the results, which may have or lack the suffix #SPLIT."""
    from r2med.tasks.load import task_names

    try:
        name = task_names([text])[0]
    except UsageError:
        name = text
    tasks = {result.task for result in stored}
    alike = [task for task in tasks if task.partition("#")[0] == name.partition("#")[0]]
    return alike[0] if name not in tasks and len(alike) == 1 else name


def _add_candidates(folder: Path, dense: str, **settings: Any) -> dict[str, list[CandidateList]]:
    """Add candidates; if the encoder cannot be loaded, suggest one that needs no download."""
    from r2med.nano.folder import add_candidates

    try:
        return add_candidates(folder, dense, **settings)
    except (MissingError, OfflineError) as problem:
        if dense == "wordllama" or not folder.is_dir():
            raise
        hint = "--dense wordllama uses a small encoder that needs no download."
        raise type(problem)(f"{problem}\n{hint}") from problem
