"""`r2med diff`: the queries that moved most between two systems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def diff(
    a: Annotated[
        str, typer.Argument(metavar="A", help="A stored system, a result's folder or a run file.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="What it is held against.")],
    task: Annotated[str, typer.Option("--task", "-t", help="A task or a folder.")],
    metric: Annotated[str, typer.Option(help="The metric that must move.")] = "ndcg@10",
    limit: Annotated[int, typer.Option(min=1, help="Queries shown.")] = 10,
    results: Annotated[Path, typer.Option(help="Where results are stored.")] = Path(
        "r2med-results"
    ),
    data_root: Annotated[Path | None, typer.Option(help="Folder with task data you have.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all queries as JSON and nothing else.")
    ] = False,
) -> None:
    """List the queries that moved most from A to B, with snippets."""
    from r2med.errors import UsageError
    from r2med.measure.names import parse_metric
    from r2med.report.console import console, notice
    from r2med.report.diff_view import Difference, print_difference, to_json
    from r2med.results.lookup import stored_results
    from r2med.results.movement import movements
    from r2med.results.ranking import find_ranking
    from r2med.tasks.load import load_task
    from r2med.tasks.registry import resolve

    chosen = str(parse_metric(metric))
    wanted = resolve(task)
    if len(wanted) != 1:
        raise UsageError(f"--task {task}: diff looks at exactly one task, this names several.")
    item = wanted[0]
    loaded = load_task(item if isinstance(item, Path) else item.name, root=data_root)
    stored = stored_results(results, notice)
    first, second = (find_ranking(each, stored, loaded, results, notice) for each in (a, b))
    moved = movements(first, second, loaded, chosen)
    difference = Difference(first.name, second.name, loaded.name, chosen, tuple(moved))
    if as_json:
        typer.echo(json.dumps(to_json(difference), indent=2, ensure_ascii=False))
    else:
        print_difference(difference, loaded, console(), limit=limit)
