"""`r2med compare`: is one system really better than another?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from r2med.report.comparison_table import Versus


def compare(
    systems: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...", help="Stored systems, folders of stored results, or TREC run files."
        ),
    ],
    task: Annotated[
        str | None,
        typer.Option("--task", "-t", help="Tasks or suites; by default all that they share."),
    ] = None,
    metric: Annotated[str, typer.Option(help="The metric compared.")] = "ndcg@10",
    results: Annotated[Path, typer.Option(help="Where results are stored.")] = Path(
        "r2med-results"
    ),
    data_root: Annotated[
        Path | None, typer.Option(help="Folder with task data you have, for run files.")
    ] = None,
    resamples: Annotated[
        int, typer.Option(min=100, help="Draws of the bootstrap and the randomisation test.")
    ] = 10_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Compare systems query by query, per task and pooled, with intervals and tests."""
    from r2med.measure.names import parse_metric

    chosen = str(parse_metric(metric))
    names, pairs = _pairs(systems, task, chosen, results, data_root, resamples)
    if as_json:
        from r2med.report.comparison_table import pair_json

        told = {"metric": chosen, "systems": names, "pairs": [pair_json(pair) for pair in pairs]}
        typer.echo(json.dumps(told, indent=2))
    else:
        _show(names, pairs, chosen)


def _pairs(
    systems: list[str],
    task: str | None,
    metric: str,
    folder: Path,
    root: Path | None,
    resamples: int,
) -> tuple[list[str], list[Versus]]:
    from itertools import combinations, islice

    from r2med.errors import UsageError
    from r2med.measure.pooled import compare_tasks
    from r2med.report.comparison_table import Versus
    from r2med.report.console import notice
    from r2med.results.contenders import aligned, contender
    from r2med.results.lookup import is_run_file, stored_results
    from r2med.tasks.load import load_tasks, task_names
    from r2med.tasks.registry import resolve

    if len(systems) < 2:
        raise UsageError("compare needs two systems or more, e.g. r2med compare bm25 bm25-lucene.")
    named = resolve(task) if task else []
    tasks = []
    if any(is_run_file(system) for system in systems):
        tasks = list(islice(load_tasks(task, root=root), 2)) if task else []
    stored = stored_results(folder, notice)
    found = [contender(system, stored, tasks, metric, folder) for system in systems]
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        raise UsageError("compare: the same system is given twice.")
    wanted = task_names(named) or None
    suite, columns = aligned(found, wanted, metric, notice)
    pairs = [
        Versus(
            names[a],
            names[b],
            suite,
            compare_tasks(
                {task: (each[a], each[b]) for task, each in columns.items()}, resamples=resamples
            ),
        )
        for a, b in combinations(range(len(names)), 2)
    ]
    return names, pairs


def _show(names: list[str], pairs: list[Versus], metric: str) -> None:
    from r2med.report.comparison_table import print_matrix, print_pair
    from r2med.report.console import console

    if len(pairs) == 1:
        print_pair(pairs[0], metric, console())
    else:
        print_matrix(pairs, names, metric, console())
