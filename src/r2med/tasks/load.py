"""Load a task by its registered name or from any folder, with what its reader must know."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from r2med.errors import DataError, MissingError, UsageError
from r2med.home import user_path
from r2med.tasks.fetch.provenance import data_folder
from r2med.tasks.reading.arrow_copy import read_or_copy
from r2med.tasks.reading.collection import read_task
from r2med.tasks.reading.source import Source, find_source, split_selection
from r2med.tasks.registry import TaskEntry, find_task, known_task, resolve, suites
from r2med.tasks.task import Task
from r2med.tasks.verify import compared

_DIFFERENCES_SHOWN = 5


def load_task(
    name_or_path: str | Path,
    *,
    name: str | None = None,
    root: str | Path | None = None,
    strict: bool = False,
    use_copy: bool = True,
) -> Task:
    """Load a registered task, or the task in a folder (`FOLDER#SPLIT` where it holds several).

    A registered name wins over a folder of the same name; write `./Biology` for the folder.
    `name` replaces the folder's own name, under which results are stored and shown.
    `root` is a folder with data in the reference layout (`root/<task>/...`) to be taken as the
    registered task. `strict` makes judgements for unknown queries or documents an error.
    `use_copy=False` neither reads nor writes the local Arrow copy.
    """
    # files of a task are written under its name, which must not lead out of their folder
    parts = [] if name is None else name.split("/")
    if {"", ".", ".."} & {*parts} or any("\\" in part or "\0" in part for part in parts):
        raise UsageError(
            f"name {name!r}: a task's name is one or more words joined by '/', without '..'."
        )
    entry = _registered(name_or_path)
    if entry is None:
        folder, split = split_selection(name_or_path)
        source, own_name = find_source(folder, split), _own_name(folder, split)
    else:
        source = _fetched(entry) if root is None else _source_under(user_path(root), entry)
        own_name = entry.name
    task = read_or_copy(source) if use_copy else read_task(source)
    if strict and task.strays:
        raise DataError(
            f"{task.strays[0]}\nLeave --strict (strict=True) out to go on with a notice."
        )
    task = replace(task, name=name or own_name, suite=entry.suite if entry else None, entry=entry)
    return task if entry is None else _with_differences(task, entry, texts=root is not None)


def load_tasks(
    tasks: str | Sequence[TaskEntry | Path | str],
    *,
    root: str | Path | None = None,
    strict: bool = False,
    own: Mapping[str, Path] | None = None,
) -> Iterator[Task]:
    """Tasks, or those that a comma-separated list names, each read when its turn comes."""
    items = resolve(tasks, own) if isinstance(tasks, str) else tasks
    return (
        load_task(
            item.name if isinstance(item, TaskEntry) else item, name=name, root=root, strict=strict
        )
        for item, name in zip(items, task_names(items, own), strict=True)
    )


def task_names(
    tasks: Sequence[TaskEntry | Task | Path | str], own: Mapping[str, Path] | None = None
) -> list[str]:
    """What each of several tasks is called in results and tables; no two share a name.

    A folder gives its name, and `FOLDER#SPLIT` that; folders of one name take their parents'
    names before it, as many as it takes. `own` are folders that have their names already.
    """
    places = [_place(task) for task in tasks]
    taken = {name: replace(_place(folder), own_name=name) for name, folder in (own or {}).items()}
    known = {(place.folder, place.split): name for name, place in taken.items()}
    parents = [0] * len(places)
    while True:
        names = []
        for place, above in zip(places, parents, strict=True):
            unchosen = place.own_name == _own_name(place.folder, place.split)
            name = known.get((place.folder, place.split)) if unchosen else None
            names.append(name or "/".join([*place.folder.parts[-1 - above : -1], place.own_name]))
        holders = {name: {place} for name, place in taken.items()}
        for name, place in zip(names, places, strict=True):
            same = replace(place, own_name=name, hash=None) if name in taken else place
            holders.setdefault(name, set()).add(same)
        shared = [row for row, name in enumerate(names) if len(holders[name]) > 1]
        if not shared:
            return names
        rows = [row for row in shared if parents[row] < len(places[row].folder.parts) - 2]
        if not rows:
            raise UsageError(
                f"Two different tasks are named {names[shared[0]]!r}, so results of one would "
                "hide those of the other.\nGive one a name: load_task(folder, name=...)."
            )
        for row in rows:
            parents[row] += 1


@dataclass(frozen=True)
class _Place:
    """What tells tasks of one name apart: the folder, its split, and the data if it is loaded."""

    own_name: str
    folder: Path = Path()
    split: str | None = None
    hash: str | None = None


def _place(task: TaskEntry | Task | Path | str) -> _Place:
    if isinstance(task, TaskEntry):
        return _Place(task.name)
    if isinstance(task, Task):
        folder = Path() if task.entry else task.source.resolve()
        return _Place(task.name, folder, task.split, task.hash)
    if entry := _registered(task):
        return _Place(entry.name)
    folder, split = split_selection(task)
    return _Place(_own_name(folder, split), folder.resolve(), split)


def _own_name(folder: Path, split: str | None) -> str:
    name = folder.resolve().name
    return f"{name}#{split}" if split else name


def _registered(name_or_path: str | Path) -> TaskEntry | None:
    if isinstance(name_or_path, Path) or name_or_path.startswith((".", "~", os.sep)):
        return None
    head, separator, _ = name_or_path.partition(os.sep)
    # data/mine is a path, but demo/bio a mistyped task
    path_like = separator and head.lower() not in {suite.name for suite in suites()}
    if not path_like and not (name_or_path.strip() and split_selection(name_or_path)[0].exists()):
        return find_task(name_or_path)
    return known_task(name_or_path)


def _fetched(entry: TaskEntry) -> Source:
    try:
        return find_source(data_folder(entry), entry.split)
    except (MissingError, UsageError):
        raise MissingError(
            f"The data of {entry.name} is not here.\n"
            f"Fetch it with `r2med fetch {entry.name}`, or point to a copy of your own with "
            f"--data-root DIR, where DIR/{entry.name} holds it."
        ) from None


def _source_under(root: Path, entry: TaskEntry) -> Source:
    """The task's own folder; for a task that is a split, also the folder of all its siblings."""
    if not root.is_dir():
        raise MissingError(f"There is no folder {root} (given as data root).")
    places: list[tuple[Path, str | None]] = [(root / entry.name, None)]
    if entry.split is not None and entry.hub is not None:
        places.append((root / entry.hub.repo.rpartition("/")[2], entry.split))
    if entry.split is not None and (root / "corpus").is_dir():
        places.append((root, entry.split))
    for folder, split in places:
        if folder.is_dir():
            return find_source(folder, split)
    names = ", ".join(sorted(child.name for child in root.iterdir() if child.is_dir())[:20])
    raise MissingError(
        f"{root} has no folder {entry.name} with the data of that task.\n"
        f"Folders there: {names or 'none'}."
    )


def _with_differences(task: Task, entry: TaskEntry, *, texts: bool) -> Task:
    """Data of the user's own is compared in full; fetched data was verified when it came."""
    differing = [
        f"{check.what} {_figure(check.found)} instead of {_figure(check.expected)}"
        for check in compared(task, entry, texts=texts)
        if check.passed is False
    ]
    if not differing:
        return task
    more = len(differing) - _DIFFERENCES_SHOWN
    notice = (
        f"The data differs from the manifest of {entry.name}: "
        f"{'; '.join(differing[:_DIFFERENCES_SHOWN])}{f' and {more} more' if more > 0 else ''}. "
        "Scores may not compare with published ones."
    )
    return replace(task, notices=(*task.notices, notice), differences=tuple(differing))


def _figure(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
