"""`r2med reproduce`: run a published system and hold it against its published figures."""

from __future__ import annotations

import typer

from r2med.cli.options import (
    METRIC,
    RESULTS,
    DataRoot,
    Device,
    Engine,
    Format,
    Json,
    Metric,
    Results,
    System,
    Task,
    WorkerTimeout,
    conditions,
    format_of,
)


def reproduce(
    system: System,
    task: Task = "full",
    metric: Metric = METRIC,
    results: Results = RESULTS,
    data_root: DataRoot = None,
    form: Format = None,
    as_json: Json = False,
    device: Device = None,
    engine: Engine = "local",
    worker_timeout: WorkerTimeout = None,
) -> None:
    """Run a published system; show ours, published, difference and verdict per task.

    Exits with 1 when a task could not be run; what is missing, and how to get it, is said.
    """
    from r2med.engine.reproduce import reproduce as reproduced
    from r2med.report.console import progress
    from r2med.report.formats import show
    from r2med.tasks.registry import resolve

    shown = format_of(form, as_json)
    with progress() as bar:
        line = bar.add_task("reproducing", total=len(resolve(task)))

        def begin(name: str) -> None:
            bar.update(line, advance=1, description=f"{name} · {system}")

        found = reproduced(
            system,
            task,
            metric=metric,
            results=results,
            root=data_root,
            conditions=conditions(bar, device=device, engine=engine, worker_timeout=worker_timeout),
            begin=begin,
        )
    show(found, shown)
    if any(row.missing for row in found.tasks):
        raise typer.Exit(1)
