"""`r2med tasks profile`: the shape of a task's data, and how three plain retrievers do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.cli.options import DataRoot, Dense, Json, TaskArguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from r2med.nano.profiles import Profile
    from r2med.tasks.registry import TaskEntry


def profile(
    names: TaskArguments,
    dense: Dense = "wordllama",
    data_root: DataRoot = None,
    as_json: Json = False,
) -> None:
    """Show the observed profile and the three retrieval profiles.

    A Nano task is profiled by the candidates beside its data; for others
    they are made here. Published figures stand beside, labelled.
    """
    from r2med.nano.folder import task_group
    from r2med.nano.profiles import profiled
    from r2med.report.console import echo_json, notice

    task = ",".join(names)
    if data_root is None and not as_json and (entries := _only_published(task)):
        _show_published(entries)
        return
    group = task_group(task)
    found = [
        profiled(
            loaded,
            None if dense == "none" else dense,
            tell=notice,
        )[0]
        for loaded in group.load(data_root)
    ]
    if as_json:
        echo_json(_json(found))
    else:
        _show(found, group.title)


def _only_published(task: str) -> list[TaskEntry]:
    """The Nano tasks asked for, when none of their data is here."""
    from r2med.tasks.location import is_present
    from r2med.tasks.registry import TaskEntry, resolve

    entries = [item for item in resolve(task) if isinstance(item, TaskEntry) and item.candidates]
    asked = len(resolve(task))
    return entries if len(entries) == asked and not any(map(is_present, entries)) else []


def _show_published(entries: Sequence[TaskEntry]) -> None:
    from r2med.report.console import console
    from r2med.report.profile_table import published_table

    out = console()
    out.print(published_table(entries))
    out.print(f"Bring the data here with: r2med fetch {entries[0].name}")


def _json(found: Sequence[Profile]) -> dict[str, object]:
    from dataclasses import asdict

    from r2med.nano.profiles import group_means

    return {
        "tasks": [asdict(one) for one in found],
        "group": [asdict(mean) for mean in group_means(found)] if len(found) > 1 else [],
    }


def _show(found: Sequence[Profile], title: str) -> None:
    from r2med.report.console import console
    from r2med.report.profile_table import group_tables, profile_tables

    out = console()
    parts = profile_tables(found[0]) if len(found) == 1 else group_tables(found, title)
    for part in parts:
        out.print(part)
