"""Removes texts and local folders from results, for pages that other people read.

Reports are mailed and bundles are put on web servers. Neither may show where files are on this
machine, and neither contains a query or document unless the user asks for texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from r2med.results.record import Result
from r2med.results.store import LOCAL
from r2med.tasks.registry import registered_task

_PATH_CHARACTERS = r"[^\s\"|+@\[\],=<>()]"
#: An absolute path or one in a home folder, up to its last part; a URL is not one.
_FOLDERS = re.compile(rf"(?<![\w./~])(?:~|/(?!/)|[A-Za-z]:\\)(?:{_PATH_CHARACTERS}*[/\\])?")
_QUOTED = re.compile(r'"([^"]*[/\\])([^"/\\]*)"')
#: Characters of a recorded value that cannot be a text of a task.
_LONGEST_FACT = 60

V = TypeVar("V")


def name_local_task(result: Result) -> Result:
    """Return the result, with its task renamed if a local task has the name of a registered one."""
    name = local_name(result.task) if result.suite is None else result.task
    if name == result.task:
        return result
    record = result.record
    renamed = replace(record, task=replace(record.task, name=name))
    return Result.from_record(result.folder, renamed, tables=result.tables)


def local_name(task: str) -> str:
    """Return a name for a local task that differs from all names of registered tasks."""
    return f"{LOCAL}/{task}" if registered_task(task) else task


def hide_folders(results: Iterable[Result]) -> list[Result]:
    """Return all results, with the folders removed from the file names in their specs."""
    hidden = []
    for result in results:
        specs = (result.system, *result.summary.other_specs)
        if all(without_folders(spec) == spec for spec in specs):
            hidden.append(result)
            continue
        record = result.record
        system = replace(
            record.system,
            spec=without_folders(record.system.spec),
            other_specs=tuple(map(without_folders, record.system.other_specs)),
        )
        reranking = record.reranking
        if reranking is not None:
            reranking = replace(reranking, first=without_folders(reranking.first))
        record = replace(record, system=system, reranking=reranking)
        hidden.append(Result.from_record(result.folder, record, tables=result.tables))
    return hidden


def without_folders(text: str) -> str:
    """Return a text in which absolute paths are shortened to the names of their files."""
    return _FOLDERS.sub("", _QUOTED.sub(r'"\2"', text))


def shareable(value: V, *, texts: bool) -> V:
    """Return recorded settings or facts without folders, and without texts unless `texts`.

    Texts are the fields whose names begin with `first`, which quote the first query and document as
    a model saw them. Other long values are replaced with their length.
    """
    shared: Any = value
    if isinstance(value, Mapping):
        shared = {
            without_folders(str(name)): shareable(field, texts=texts)
            for name, field in value.items()
            if texts or not str(name).startswith("first")
        }
    elif isinstance(value, str):
        shared = without_folders(value)
        if not texts and len(shared) > _LONGEST_FACT:
            shared = f"({len(shared):,} characters)"
    elif isinstance(value, list | tuple):
        shared = [shareable(item, texts=texts) for item in value]
    return shared  # type: ignore[no-any-return]
