"""`r2med tasks`: what can be measured, bringing its data here, and checking that data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.cli.group import command_group
from r2med.cli.options import (
    GROUPINGS,
    AnyTaskArguments,
    By,
    DataRoot,
    Json,
    TaskArguments,
    chosen,
)
from r2med.errors import MissingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from r2med.tasks.registry import TaskEntry
    from r2med.tasks.verify import Check

tasks = command_group(
    default="list", help="List, fetch, verify and describe tasks.", no_args_is_help=False
)


@tasks.command("list")
def list_tasks(names: AnyTaskArguments = None, by: By = "task", as_json: Json = False) -> None:
    """List the tasks, whether their data is here, and their shape."""
    from r2med.report.console import console, echo_json
    from r2med.report.tasks import group_table, suite_table
    from r2med.tasks.registry import suites

    grouping = chosen(by, GROUPINGS, "--by")
    entries = _entries(names or [])
    if as_json:
        echo_json([_facts(entry) for entry in entries])
        return
    out = console()
    for suite in suites():
        if members := [entry for entry in entries if entry.suite == suite.name]:
            by_task = grouping == "task"
            out.print(suite_table(suite, members) if by_task else group_table(suite, members, by))
            out.print()
    out.print("`r2med tasks show TASK` tells all about one; `r2med fetch TASK` brings its data.")


@tasks.command()
def show(names: TaskArguments, as_json: Json = False) -> None:
    """Show all that is known of a task, its licence and citation among it."""
    from r2med.report.console import console, echo_json
    from r2med.report.tasks import task_details

    entries = _entries(names)
    if as_json:
        echo_json([_facts(entry) for entry in entries])
        return
    for place, entry in enumerate(entries):
        console().print(*([""] if place else []), task_details(entry))


@tasks.command(short_help="Check data against what the manifest says of it.")
def verify(
    names: AnyTaskArguments = None,
    data_root: DataRoot = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every fact, also those that agree.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check counts, text statistics and sha256 of data against the manifest.

    For Nano tasks also the figures of their candidate subsets.
    Exits with 1 when anything differs. What the manifest does not know is
    shown as unknown.
    """
    from dataclasses import asdict

    from r2med.nano.profiles import check_profile
    from r2med.report.console import console, echo_json, progress
    from r2med.report.tasks import check_summary, check_table
    from r2med.tasks.verify import verify as verify_data

    entries = _to_verify(names or [], data_root)
    checks: list[Check] = []
    with progress() as bar:
        line = bar.add_task("verifying", total=len(entries))
        for entry in entries:
            bar.update(line, description=f"verifying {entry.name}")
            checks += verify_data([entry], root=data_root)
            if entry.suite == "nano":
                checks += check_profile(entry, root=data_root)
            bar.advance(line)
    if as_json:
        echo_json([asdict(check) for check in checks])
    else:
        out = console()
        if len(entries) > 1:
            out.print(check_summary(entries, checks))
        shown = every or len(entries) == 1
        if rows := [check for check in checks if shown or check.passed is False]:
            out.print(check_table(rows))
    if any(check.passed is False for check in checks):
        raise typer.Exit(1)


def _to_verify(names: Sequence[str], data_root: Path | None) -> list[TaskEntry]:
    from r2med.tasks.location import is_present

    if names:
        return _entries(names)
    if data_root is not None:
        raise UsageError("With --data-root name tasks to check, e.g. `r2med tasks verify full`.")
    here = [entry for entry in _entries([]) if is_present(entry)]
    if not here:
        raise MissingError("No task data is here yet. `r2med fetch nano` brings some.")
    return here


def _entries(names: Sequence[str]) -> list[TaskEntry]:
    """The registered tasks of these names, all of them without names; a folder is a UsageError."""
    from r2med.tasks.registry import TaskEntry, all_entries, resolve

    found = [item for name in names for item in resolve(name)] if names else all_entries()
    for item in found:
        if not isinstance(item, TaskEntry):
            raise UsageError(
                f"{item} is a folder, and the manifest knows registered tasks only.\n"
                "For your copy of a registered task: r2med tasks verify TASK --data-root DIR."
            )
    return list(dict.fromkeys(item for item in found if isinstance(item, TaskEntry)))


def _facts(entry: TaskEntry) -> dict[str, object]:
    from dataclasses import asdict

    from r2med.tasks.location import data_folder, is_present

    here = {"present": is_present(entry), "folder": str(data_folder(entry))}
    return {**asdict(entry), **here, "positives_per_query": entry.positives_per_query}
