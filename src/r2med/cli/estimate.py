"""`r2med eval --dry-run`: what paid models would be asked, and what that would cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from r2med.retrieve.conditions import Conditions


def estimate(
    systems: Sequence[str],
    tasks: str,
    root: Path | None,
    conditions: Callable[[Conditions], Conditions],
    *,
    as_json: bool,
) -> None:
    """Show the estimates of every part that asks a model; nothing is asked or stored."""
    from r2med.report.console import console
    from r2med.report.generation_table import estimate_table

    rows = _rows(systems, tasks, root, conditions)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif not rows:
        typer.echo("No part of these systems asks a paid model.")
    else:
        for part in dict.fromkeys(str(row["part"]) for row in rows):
            console().print(estimate_table([row for row in rows if row["part"] == part], part))


def _rows(
    systems: Sequence[str],
    tasks: str,
    root: Path | None,
    conditions: Callable[[Conditions], Conditions],
) -> list[dict[str, object]]:
    from r2med.engine.estimating import estimates
    from r2med.report.generation_table import estimate_row
    from r2med.retrieve.conditions import Conditions
    from r2med.systems.pipeline import System
    from r2med.tasks.load import load_task
    from r2med.tasks.registry import resolve

    built = [System.from_spec(system, conditions(Conditions())) for system in systems]
    found = []
    for wanted in resolve(tasks):
        task = load_task(wanted if isinstance(wanted, Path) else wanted.name, root=root)
        for system in built:
            for part, told, turns in estimates(system.stage, task):
                found.append({"part": part, **estimate_row(task.name, told, turns)})
    return found
