"""`r2med diagnose`: where a system fails, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from r2med.results.diagnosis import Diagnosis
    from r2med.tasks.task import Task


def diagnose(
    system: Annotated[
        str,
        typer.Argument(
            metavar="SYSTEM", help="A stored system, a stored result's folder, or a run file."
        ),
    ],
    task: Annotated[str, typer.Option("--task", "-t", help="A task, a suite or a folder.")],
    query: Annotated[str | None, typer.Option(help="Show one query in full, by its id.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Queries shown, the worst first.")] = 20,
    out: Annotated[
        Path | None, typer.Option(help="Write a row a positive to this .parquet or .csv file.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Where results are stored.")] = Path(
        "r2med-results"
    ),
    data_root: Annotated[Path | None, typer.Option(help="Folder with task data you have.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Say where a system fails and why.

    For each query the rank of its positives, and for each missed one a cause with the numbers
    that justify it; then slices, and the unjudged documents among the first ten.
    """
    from r2med.errors import UsageError

    if out is not None and out.suffix not in (".parquet", ".csv"):
        raise UsageError(f"--out {out}: expected a file that ends in .parquet or .csv.")
    found = _diagnosed(system, task, results, data_root)
    if query is not None:
        found = [_with_query(found, query)]
    if out is not None:
        _write(found, out)
    if as_json:
        from r2med.report.diagnosis_export import to_json

        told = to_json([each for each, _ in found], query)
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        _show(found, query, limit)


def _diagnosed(
    system: str, named: str, folder: Path, root: Path | None
) -> list[tuple[Diagnosis, Task]]:
    from r2med.errors import UsageError
    from r2med.report.console import notice
    from r2med.results.diagnosis import diagnose as look_into
    from r2med.results.lookup import is_run_file, stored_results
    from r2med.results.ranking import find_ranking
    from r2med.tasks.load import load_tasks
    from r2med.tasks.registry import resolve

    if is_run_file(system) and len(resolve(named)) > 1:
        raise UsageError(f"{system} is a run file: give exactly one --task.")
    stored = stored_results(folder, notice)
    found = []
    for task in load_tasks(named, root=root):
        ranking = find_ranking(system, stored, task, folder, notice)
        found.append((look_into(ranking, task, results=stored), task))
    return found


def _with_query(found: list[tuple[Diagnosis, Task]], query: str) -> tuple[Diagnosis, Task]:
    from r2med.errors import UsageError, nearest

    known = [each.query_id for diagnosis, _ in found for each in diagnosis.queries]
    holders = [pair for pair in found if any(q.query_id == query for q in pair[0].queries)]
    if not holders:
        raise UsageError(f"--query {query!r}: no such query. {nearest(query, known)}")
    if len(holders) > 1:
        names = ", ".join(diagnosis.task for diagnosis, _ in holders)
        raise UsageError(f"--query {query!r} is in several tasks: {names}. Choose one with --task.")
    return holders[0]


def _write(found: list[tuple[Diagnosis, Task]], out: Path) -> None:
    from r2med.atomic import atomic_file
    from r2med.report.diagnosis_export import to_arrow
    from r2med.tabular import csv_text

    table = to_arrow([diagnosis for diagnosis, _ in found])
    with atomic_file(out) as draft:
        if out.suffix == ".csv":
            draft.write_text(csv_text(table), encoding="utf-8")
        else:
            import pyarrow.parquet as pq

            pq.write_table(table, draft)


def _show(found: list[tuple[Diagnosis, Task]], query: str | None, limit: int) -> None:
    from r2med.report.console import console
    from r2med.report.diagnosis_query import print_query
    from r2med.report.diagnosis_table import print_diagnosis, print_slices

    screen = console()
    if query is not None:
        diagnosis, task = found[0]
        chosen = next(each for each in diagnosis.queries if each.query_id == query)
        print_query(diagnosis, chosen, task, screen)
        return
    for place, (diagnosis, _) in enumerate(found):
        if place:
            screen.print()
        print_diagnosis(diagnosis, screen, limit=limit)
    print_slices([diagnosis for diagnosis, _ in found], screen)
