"""`r2med verify`: is the data what the manifest says?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from r2med.tasks.registry import TaskEntry
    from r2med.tasks.verify import Check


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SUITE|TASK...]", help="What to check; all data that is here."),
    ] = None,
    data_root: Annotated[
        Path | None,
        typer.Option(help="Folder with task data you have, as ROOT/<task>/corpus.jsonl ..."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every fact, also those that agree.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Check counts, text statistics and sha256 of data against the manifest.

    For Nano tasks also the figures of their candidate subsets.
    Exits with 1 when anything differs. What the manifest does not know is
    shown as unknown.
    """
    from dataclasses import asdict

    from r2med.nano.checks import check_profile
    from r2med.report.console import progress
    from r2med.tasks.verify import verify as verify_data

    entries = _entries(names or [], data_root)
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
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        _show(entries, checks, every=every)
    if any(check.passed is False for check in checks):
        raise typer.Exit(1)


def _entries(names: Sequence[str], data_root: Path | None) -> list[TaskEntry]:
    from r2med.errors import MissingError, UsageError
    from r2med.tasks.location import is_present
    from r2med.tasks.registry import TaskEntry, all_entries, resolve

    if not names and data_root is None:
        here = [entry for entry in all_entries() if is_present(entry)]
        if not here:
            raise MissingError("No task data is here yet. `r2med fetch nano` brings some.")
        return here
    if not names:
        raise UsageError("With --data-root say which tasks to check, e.g. `r2med verify full`.")
    found = [item for name in names for item in resolve(name)]
    if folders := [item for item in found if isinstance(item, Path)]:
        raise UsageError(
            f"{folders[0]} is a folder: there is no manifest to check it against.\n"
            "For a copy of a registered task: r2med verify TASK --data-root DIR."
        )
    return list(dict.fromkeys(item for item in found if isinstance(item, TaskEntry)))


def _show(entries: Sequence[TaskEntry], checks: Sequence[Check], *, every: bool) -> None:
    from r2med.report.console import console
    from r2med.report.task_tables import check_summary, check_table

    out = console()
    if len(entries) > 1:
        out.print(check_summary(entries, checks))
    shown = every or len(entries) == 1
    if rows := [check for check in checks if shown or check.passed is False]:
        out.print(check_table(rows))
