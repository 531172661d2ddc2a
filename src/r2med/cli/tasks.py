"""`r2med tasks`: what can be measured, whether its data is here, and its shape."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from r2med.tasks.registry import TaskEntry


def tasks(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[SUITE|TASK]", help="One suite (full, nano, demo) or one task."),
    ] = None,
    by: Annotated[str, typer.Option(help="Rows of the table: task, scenario or family.")] = "task",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """List the tasks, whether their data is here, and their shape."""
    from r2med.cli.choices import chosen
    from r2med.errors import UsageError
    from r2med.tasks.registry import TaskEntry, all_entries, resolve

    grouping = chosen(by, ("task", "scenario", "family"), "--by")
    found = resolve(name) if name else list(all_entries())
    entries = [item for item in found if isinstance(item, TaskEntry)]
    if len(entries) < len(found):
        raise UsageError(f"{name} is a folder; `r2med tasks` lists registered tasks only.")
    if as_json:
        typer.echo(json.dumps([_facts(entry) for entry in entries], indent=2))
    else:
        _show(entries, grouping)


def _show(entries: Sequence[TaskEntry], by: str) -> None:
    from r2med.report.console import console
    from r2med.report.task_tables import group_table, suite_table, task_details
    from r2med.tasks.registry import suites

    out = console()
    if len(entries) == 1:
        out.print(task_details(entries[0]))
        return
    for suite in suites():
        if members := [entry for entry in entries if entry.suite == suite.name]:
            table = suite_table(suite, members) if by == "task" else group_table(suite, members, by)
            out.print(table)
            out.print()
    out.print("`r2med tasks TASK` tells all about one; `r2med fetch TASK` brings its data.")


def _facts(entry: TaskEntry) -> dict[str, object]:
    from dataclasses import asdict

    from r2med.tasks.location import data_folder, is_present

    here = {"present": is_present(entry), "folder": str(data_folder(entry))}
    return {**asdict(entry), **here, "positives_per_query": entry.positives_per_query}
