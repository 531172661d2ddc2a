"""Load a task by its registered name or from any folder, and compare it with its manifest.

A check compares one fact of the manifest with the data. If the manifest has no value for the fact,
the check neither passes nor fails.
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
from r2med.tasks.reading.source import TaskFiles, find_source, split_selection
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
    """Load a registered task, or a local task from a folder.

    Args:
        name_or_path: A registered name, a folder, or `FOLDER#SPLIT` for a folder with several
            splits. A registered name comes before a folder of the same name; write `./Biology` for
            the folder.
        name: The name under which results are stored and shown, instead of the folder's name.
        root: A folder with data in the reference layout (`root/<task>/...`) that is read as the
            registered task.
        strict: Raise an error if the data differs from the manifest, or if judgements name unknown
            queries or documents.
        use_copy: Read and write the local Arrow copy.

    Examples:
        >>> import r2med
        >>> task = r2med.load_task("demo/biology")
        >>> task.name
        'demo/biology'
    """
    # files of a task are written under its name, which must not lead out of their folder
    parts = [] if name is None else name.split("/")
    if {"", ".", ".."} & {*parts} or any("\\" in part or "\0" in part for part in parts):
        raise UsageError(
            f"name {name!r}: a task's name is one or more words joined by '/', without '..'."
        )
    entry = _find_registered(name_or_path)
    if entry is not None:
        return load_entry(entry, name=name, root=root, strict=strict, use_copy=use_copy)
    folder, split = split_selection(name_or_path)
    task = _read(find_source(folder, split), strict=strict, use_copy=use_copy)
    return replace(task, name=name or _folder_name(folder, split), suite=None, entry=None)


def load_entry(
    entry: TaskEntry,
    *,
    name: str | None = None,
    root: str | Path | None = None,
    strict: bool = False,
    use_copy: bool = True,
) -> Task:
    """Load a registered task; see `load_task`."""
    source = _require_fetched(entry) if root is None else _source_under(user_path(root), entry)
    task = _read(source, strict=strict, use_copy=use_copy)
    task = replace(task, name=name or entry.name, suite=entry.suite, entry=entry)
    return _with_differences(task, entry, texts=root is not None, strict=strict)


def _read(source: TaskFiles, *, strict: bool, use_copy: bool) -> Task:
    return read_or_copy(source) if use_copy and not strict else read_task(source, strict=strict)


def load_tasks(
    tasks: str | Sequence[TaskEntry | Path | str],
    *,
    root: str | Path | None = None,
    strict: bool = False,
    local_tasks: Mapping[str, Path] | None = None,
) -> Iterator[Task]:
    """Load tasks one at a time, from a sequence or a comma-separated list, and yield them."""
    items = resolve(tasks, local_tasks) if isinstance(tasks, str) else tasks
    return (
        load_entry(item, name=name, root=root, strict=strict)
        if isinstance(item, TaskEntry)
        else load_task(item, name=name, root=root, strict=strict)
        for item, name in zip(items, task_names(items, local_tasks), strict=True)
    )


def task_names(
    tasks: Sequence[TaskEntry | Task | Path | str], local_tasks: Mapping[str, Path] | None = None
) -> list[str]:
    """Return the names by which results and tables call these tasks, all of them different.

    The name of a local task is the name of its folder, with `#SPLIT` if there is one. If another
    task has the same name, parent folders are put before the name until it is unique. `local_tasks`
    maps names that are already stored in results to their folders.
    """
    candidates = [_describe_candidate(task) for task in tasks]
    owners: dict[str, _NameCandidate] = {}
    stored_names: dict[_Location, str] = {}
    for name, folder in (local_tasks or {}).items():
        location = _describe_candidate(folder).location
        owners[name] = _NameCandidate(name, location)
        stored_names[location] = name
    for candidate in candidates:
        if candidate.location == _REGISTERED:
            owners[candidate.name] = candidate
    names = []
    for candidate in candidates:
        name = candidate.name
        for possible_name in _possible_names(candidate, stored_names):
            owner = owners.setdefault(possible_name, candidate)
            if owner.location == candidate.location:
                name = possible_name
                break
        owner = owners[name]
        has_other_data = candidate.data and owner.data and candidate.data != owner.data
        if owner.location != candidate.location or has_other_data:
            raise UsageError(
                f"Two different tasks are named {name!r}, so results of one would hide those of "
                "the other.\nGive one a name: load_task(folder, name=...)."
            )
        names.append(name)
    return names


#: The folder and split of a local task.
_Location = tuple[Path, str | None]
#: The location of every registered task, which is identified by its name.
_REGISTERED: _Location = (Path(), None)


@dataclass(frozen=True)
class _NameCandidate:
    """A task to be named in results: its short name, and what tells it from others of that name."""

    name: str
    """The name that the task has if no other task has it."""
    location: _Location
    data: str | None = None
    """The hash of the task's data; None if the task is not loaded."""


def _describe_candidate(task: TaskEntry | Task | Path | str) -> _NameCandidate:
    if isinstance(task, Task):
        location = _REGISTERED if task.entry else (task.source.resolve(), task.split)
        return _NameCandidate(task.name, location, task.hash)
    if isinstance(task, TaskEntry):
        return _NameCandidate(task.name, _REGISTERED)
    if entry := _find_registered(task):
        return _NameCandidate(entry.name, _REGISTERED)
    folder, split = split_selection(task)
    return _NameCandidate(_folder_name(folder, split), (folder.resolve(), split))


def _possible_names(
    candidate: _NameCandidate, stored_names: Mapping[_Location, str]
) -> Iterator[str]:
    """Yield possible names of a task, best first; later names have more parent folders."""
    if candidate.name == _folder_name(*candidate.location):
        yield stored_names.get(candidate.location, candidate.name)
    parents = candidate.location[0].parts[1:-1]
    for start in range(len(parents), -1, -1):
        yield "/".join([*parents[start:], candidate.name])


def _folder_name(folder: Path, split: str | None) -> str:
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


def _require_fetched(entry: TaskEntry) -> TaskFiles:
    try:
        return find_source(data_folder(entry), entry.split)
    except (MissingError, UsageError):
        raise MissingError(
            f"The data of {entry.name} has not been downloaded.\n"
            f"Download it with `r2med fetch {entry.name}`, or use a copy with --data-root DIR, "
            f"where DIR/{entry.name} contains the data."
        ) from None


def _source_under(root: Path, entry: TaskEntry) -> TaskFiles:
    """Find a task below --data-root: in its own folder, or as a split of its repository."""
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
    """Compare a task with its manifest, and return it with the differences as `differences`.

    If `strict`, a difference is a DataError. `texts` also compares text statistics, which is not
    necessary for verified downloads.
    """
    differing = [
        f"{check.fact} {_figure(check.found)} instead of {_figure(check.expected)}"
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
    """The check of one fact of a task; `passed` is None if the expected value is not known."""

    task: str
    aspect: Aspect
    fact: str
    expected: str | int | float | None
    found: str | int | float | None
    passed: bool | None


def compare_with_manifest(task: Task, entry: TaskEntry, *, texts: bool = True) -> list[Check]:
    """Compare the counts and, with `texts`, the text statistics of a task with its manifest."""
    task_counts = counts(task)
    checks = [
        make_check(entry, "counts", fact, entry.counts.get(fact), count)
        for fact, count in task_counts.items()
    ]
    if texts:
        published = dict(figures(entry.statistics))
        checks += [
            make_check(entry, "statistics", fact, published.get(fact), value)
            for fact, value in figures(statistics(task))
            if fact not in task_counts
        ]
    return checks


def make_check(entry: TaskEntry, aspect: Aspect, fact: str, expected: Any, actual: Any) -> Check:
    """Compare one fact of the manifest with the data; numbers may differ by rounding."""
    passed: bool | None = expected == actual
    if expected is None or actual is None:
        passed = None
    elif isinstance(expected, float) and isinstance(actual, int | float):
        passed = math.isclose(expected, actual, rel_tol=1e-9, abs_tol=1e-6)
    return Check(entry.name, aspect, fact, expected, actual, passed)


def check_files(entry: TaskEntry, folder: Path) -> list[Check]:
    """Compare the files' checksums with the manifest, else with those recorded at download."""
    recorded = read_provenance(folder)
    checks = []
    for path, file in task_files(entry, folder).items():
        label, expected = path, entry.files.get(path, {}).get("sha256")
        if expected is None and path in recorded:
            label, expected = f"{path} (as fetched)", recorded[path].sha256
        checks.append(make_check(entry, "sha256", label, expected, sha256_of(file)))
    return checks
