"""Load a task by its registered name or from any folder, and compare it with its manifest.

A check is one fact of the manifest beside the data's own; it is open where the manifest has none.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from r2med.errors import DataError, MissingError, UsageError
from r2med.paths import user_path
from r2med.tasks.fetch.provenance import data_folder, read_provenance, sha256_of, task_files
from r2med.tasks.reading.arrow_copy import read_or_copy
from r2med.tasks.reading.collection import read_task
from r2med.tasks.reading.source import Source, find_source, split_selection
from r2med.tasks.registry import TaskEntry, find_task, known_task, resolve, suites
from r2med.tasks.task import Task, counts, figures, statistics

#: Differences from the manifest that a notice lists.
_SHOWN = 5
Aspect = Literal["counts", "statistics", "sha256", "profile"]


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
    registered task. `strict` makes it an error if the data differs from the manifest, or if
    judgements name unknown queries or documents.
    `use_copy=False` neither reads nor writes the local Arrow copy.
    """
    # files of a task are written under its name, which must not lead out of their folder
    parts = [] if name is None else name.split("/")
    if {"", ".", ".."} & {*parts} or any("\\" in part or "\0" in part for part in parts):
        raise UsageError(
            f"name {name!r}: a task's name is one or more words joined by '/', without '..'."
        )
    entry = _find_registered(name_or_path)
    if entry is None:
        folder, split = split_selection(name_or_path)
        source, own_name = find_source(folder, split), _own_name(folder, split)
    else:
        source = _require_fetched(entry) if root is None else _source_under(user_path(root), entry)
        own_name = entry.name
    copied = use_copy and not strict
    task = read_or_copy(source) if copied else read_task(source, strict=strict)
    task = replace(task, name=name or own_name, suite=entry.suite if entry else None, entry=entry)
    if entry is None:
        return task
    return _with_differences(task, entry, texts=root is not None, strict=strict)


def load_tasks(
    tasks: str | Sequence[TaskEntry | Path | str],
    *,
    root: str | Path | None = None,
    strict: bool = False,
    local_tasks: Mapping[str, Path] | None = None,
) -> Iterator[Task]:
    """Tasks, or those that a comma-separated list names, each read when its turn comes."""
    items = resolve(tasks, local_tasks) if isinstance(tasks, str) else tasks
    return (
        load_task(
            item.name if isinstance(item, TaskEntry) else item, name=name, root=root, strict=strict
        )
        for item, name in zip(items, task_names(items, local_tasks), strict=True)
    )


def task_names(
    tasks: Sequence[TaskEntry | Task | Path | str], local_tasks: Mapping[str, Path] | None = None
) -> list[str]:
    """What each of several tasks is called in results and tables; no two share a name.

    A folder gives its name, and `FOLDER#SPLIT` that; where another has that name, the names of its
    parent folders until unique. `local_tasks` are folders that have their names already.
    """
    locations = [_place(task) for task in tasks]
    holders: dict[str, tuple[_Place, str | None]] = {
        name: (_place(folder)[1], None) for name, folder in (local_tasks or {}).items()
    }
    stored = {location: name for name, (location, _) in holders.items()}
    holders |= {
        name: (location, data) for name, location, data in locations if location == _NOWHERE
    }
    names = []
    for own_name, location, data in locations:
        parents = location[0].parts[1:-1]
        longer = ["/".join([*parents[n:], own_name]) for n in range(len(parents), -1, -1)]
        if own_name == _own_name(*location):
            longer.insert(0, stored.get(location, own_name))
        free = (
            name for name in longer if holders.setdefault(name, (location, data))[0] == location
        )
        name = next(free, own_name)
        holder, held = holders[name]
        if holder != location or (data and held and data != held):
            raise UsageError(
                f"Two different tasks are named {name!r}, so results of one would hide those of "
                "the other.\nGive one a name: load_task(folder, name=...)."
            )
        names.append(name)
    return names


#: The folder and split of data of the user's own.
_Place = tuple[Path, str | None]
#: Location of a registered task, which its name identifies.
_NOWHERE: _Place = (Path(), None)


def _place(task: TaskEntry | Task | Path | str) -> tuple[str, _Place, str | None]:
    """Return a task's name, its location, and the hash of its data if it is loaded."""
    if isinstance(task, Task):
        location = _NOWHERE if task.entry else (task.source.resolve(), task.split)
        return task.name, location, task.hash
    if isinstance(task, TaskEntry):
        return task.name, _NOWHERE, None
    if entry := _find_registered(task):
        return entry.name, _NOWHERE, None
    folder, split = split_selection(task)
    return _own_name(folder, split), (folder.resolve(), split), None


def _own_name(folder: Path, split: str | None) -> str:
    name = folder.resolve().name
    return f"{name}#{split}" if split else name


def _find_registered(name_or_path: str | Path) -> TaskEntry | None:
    if isinstance(name_or_path, Path) or name_or_path.startswith((".", "~", os.sep)):
        return None
    head, separator, _ = name_or_path.partition(os.sep)
    # data/mine is a path, but demo/bio a mistyped task
    path_like = separator and head.lower() not in {suite.name for suite in suites()}
    if path_like or (name_or_path.strip() and split_selection(name_or_path)[0].exists()):
        return known_task(name_or_path)
    return find_task(name_or_path)


def _require_fetched(entry: TaskEntry) -> Source:
    try:
        return find_source(data_folder(entry), entry.split)
    except (MissingError, UsageError):
        raise MissingError(
            f"The data of {entry.name} is not here.\n"
            f"Fetch it with `r2med fetch {entry.name}`, or point to a copy of your own with "
            f"--data-root DIR, where DIR/{entry.name} holds it."
        ) from None


def _source_under(root: Path, entry: TaskEntry) -> Source:
    """The task's own folder; of a task that is a split, the folder of the whole repository."""
    if not root.is_dir():
        raise MissingError(f"--data-root {root}: the folder does not exist.")
    if (root / entry.name).is_dir():
        return find_source(root / entry.name)
    if entry.split is not None and entry.hub is not None:
        for folder in (root / entry.hub.repo.rpartition("/")[2], root):
            if (folder / "corpus").is_dir():
                return find_source(folder, entry.split)
    names = ", ".join(sorted(child.name for child in root.glob("*/"))[:20])
    raise MissingError(
        f"{root} has no folder {entry.name} with the data of that task.\n"
        f"Folders there: {names or 'none'}."
    )


def _with_differences(task: Task, entry: TaskEntry, *, texts: bool, strict: bool) -> Task:
    """Compare a task with its manifest, and note differences in the task; an error if strict.

    `texts` also compares the texts; downloaded data was verified when it came.
    """
    differing = [
        f"{check.what} {_figure(check.found)} instead of {_figure(check.expected)}"
        for check in compare_with_manifest(task, entry, texts=texts)
        if check.passed is False
    ]
    if not differing:
        return task
    more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
    notice = (
        f"The data differs from the manifest of {entry.name}: "
        f"{'; '.join(differing[:_SHOWN])}{more}. Scores are not comparable with published ones."
    )
    if strict:
        raise DataError(f"{notice}\nWithout --strict this is only a warning.")
    return replace(task, notices=(*task.notices, notice), differences=tuple(differing))


def _figure(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


@dataclass(frozen=True)
class Check:
    """One fact of one task; `passed` is None when there is nothing to compare with."""

    task: str
    aspect: Aspect
    what: str
    expected: str | int | float | None
    found: str | int | float | None
    passed: bool | None


def compare_with_manifest(task: Task, entry: TaskEntry, *, texts: bool = True) -> list[Check]:
    """Counts and, with `texts`, text statistics of a task against its manifest."""
    sizes, published = counts(task), dict(figures(entry.statistics))
    measured = dict(figures(statistics(task))) if texts else {}
    return [
        *(make_check(entry, "counts", n, entry.counts.get(n), size) for n, size in sizes.items()),
        *(
            make_check(entry, "statistics", n, published.get(n), value)
            for n, value in measured.items()
            if n not in sizes
        ),
    ]


def make_check(entry: TaskEntry, aspect: Aspect, fact: str, expected: Any, actual: Any) -> Check:
    """Compare a fact of the manifest with the data; manifests are rounded to six digits."""
    passed: bool | None = expected == actual
    if expected is None or actual is None:
        passed = None
    elif isinstance(expected, float) and isinstance(actual, int | float):
        passed = math.isclose(expected, actual, rel_tol=1e-9, abs_tol=1e-6)
    return Check(entry.name, aspect, fact, expected, actual, passed)


def check_files(entry: TaskEntry, folder: Path) -> list[Check]:
    """Checksums: against the manifest, or else against the record of the download."""
    recorded = read_provenance(folder)
    checks = []
    for path, file in task_files(entry, folder).items():
        label, expected = path, entry.files.get(path, {}).get("sha256")
        if expected is None and path in recorded:
            label, expected = f"{path} (as fetched)", recorded[path].sha256
        checks.append(make_check(entry, "sha256", label, expected, sha256_of(file)))
    return checks
