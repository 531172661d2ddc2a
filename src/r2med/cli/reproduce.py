"""`r2med reproduce`: run a published system and hold it against its published figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from r2med.results.published import PublishedSystem
    from r2med.results.record import Result
    from r2med.results.reproduction import Reproduction
    from r2med.tasks.registry import TaskEntry
    from r2med.tasks.task import Task


def reproduce(
    system: Annotated[
        str, typer.Argument(help="A published system, e.g. bm25 or 'nv | rankllama@100'.")
    ],
    task: Annotated[
        str, typer.Option("--task", "-t", help="Tasks, full or nano; comma-separated.")
    ] = "full",
    metric: Annotated[str, typer.Option(help="The metric shown.")] = "ndcg@10",
    data_root: Annotated[
        Path | None,
        typer.Option(help="Folder with task data you have, as ROOT/<task>/corpus.jsonl ..."),
    ] = None,
    results: Annotated[Path, typer.Option(help="Where results are stored.")] = Path(
        "r2med-results"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Run a published system; show ours, published, difference and verdict per task.

    Exits with 1 when a task could not be run; what is missing, and how to get it, is said.
    """
    from r2med.measure.metrics import parse_metric
    from r2med.report.console import console
    from r2med.report.reproduction_table import print_reproduction, reproduction_json
    from r2med.results.reproduction import find_published, runnable
    from r2med.tasks.registry import resolve

    tasks = resolve(task)
    chosen = str(parse_metric(metric))
    published = find_published(system, _suite(tasks))
    text = runnable(system)
    rows = _rows(text, tasks, published, chosen, data_root, results)
    if as_json:
        typer.echo(json.dumps(reproduction_json(text, published, chosen, rows), indent=2))
    else:
        print_reproduction(text, published, chosen, rows, console())
    if any(row.missing for row in rows):
        raise typer.Exit(1)


def _suite(tasks: list[TaskEntry | Path]) -> str:
    """The suite whose figures count; a folder of the user's own is held against the full one's."""
    from r2med.errors import UsageError

    found = {"full" if isinstance(task, Path) else task.suite for task in tasks}
    if len(found) > 1:
        raise UsageError(
            f"--task names tasks of {' and '.join(sorted(found))}: reproduce one suite at a time."
        )
    return found.pop()


def _rows(
    system: str,
    tasks: list[TaskEntry | Path],
    published: PublishedSystem,
    metric: str,
    root: Path | None,
    results: Path,
) -> list[Reproduction]:
    from r2med.errors import R2MedError
    from r2med.report.console import progress
    from r2med.results.reproduction import check_names, not_run, reproduction

    rows = []
    cannot = check_names(system)
    with progress() as bar:
        line = bar.add_task("reproducing", total=len(tasks))
        for item in tasks:
            name = item if isinstance(item, Path) else item.name
            bar.update(line, description=f"{name} · {system}")
            try:
                if cannot:
                    rows.append(not_run(str(name), published, metric, cannot))
                    continue
                result, task = _evaluated(system, name, root, results)
                ties = _tie_bounds(result, task, metric)
                rows.append(reproduction(result, published, metric, ties=ties))
            except R2MedError as problem:
                rows.append(not_run(str(name), published, metric, problem))
            bar.update(line, advance=1)
    return rows


def _evaluated(
    system: str, name: str | Path, root: Path | None, results: Path
) -> tuple[Result, Task]:
    from r2med.engine.evaluate import evaluate
    from r2med.tasks.load import load_task

    task = load_task(name, root=root)
    return evaluate(system, task, results=results), task


def _tie_bounds(result: Result, task: Task, metric: str) -> tuple[float, float]:
    from typing import cast

    from r2med.measure.bounds import tie_bounds
    from r2med.runs.ties import TieOrder

    order = cast(TieOrder, result.record.system.ties)
    found = tie_bounds(result.run, task.judgements, [metric], ties=order)
    return found.worst.means()[metric], found.best.means()[metric]
