"""The registered tasks: read from manifests, and found by name or alias."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from r2med.errors import UsageError, nearest
from r2med.paths import user_path
from r2med.plugins import RegistryEntry, load_plugins
from r2med.tasks.reading.source import find_source, split_selection, task_folders

MANIFESTS = Path(__file__).parent / "manifests"
_SUITES = ("full", "nano", "demo")


@dataclass(frozen=True)
class HubSource:
    """A dataset repository on the hub; a revision of None is the default branch."""

    repo: str
    revision: str | None = None


@dataclass(frozen=True)
class TaskEntry:
    """The manifest of a registered task; `unknown` lists open questions.

    `source` names the R2MED task that a nano or demo task represents. `statistics` may be
    incomplete: an absent figure is unknown, not zero. If r2med contains the data, `edition` is its
    current number and `data` its hash. `files` has sha256 and size in bytes of published files.
    """

    name: str
    suite: str
    source: str
    aliases: tuple[str, ...]
    family: str
    scenario: str
    description: str
    kind: str
    purpose: str
    hub: HubSource | None = None
    split: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict, hash=False)
    statistics: Mapping[str, Any] = field(default_factory=dict, hash=False)
    positives: Mapping[str, float] = field(default_factory=dict, hash=False)
    candidates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    readme: Mapping[str, float] = field(default_factory=dict, hash=False)
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    licence: str | None = None
    licence_source: str | None = None
    citation: str = ""
    unknown: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    """Names of the same questions in other collections, such as `BRIGHT/Biology`."""
    edition: int | None = None
    data: str | None = None


@dataclass(frozen=True)
class Suite:
    """Tasks that are reported together, in their published order."""

    name: str
    title: str
    entries: tuple[TaskEntry, ...]


def suites() -> tuple[Suite, ...]:
    """Return the three suites: full, nano, demo."""
    return tuple(_suite(name) for name in _SUITES)


def all_entries() -> tuple[TaskEntry, ...]:
    """Return every registered task, suite by suite."""
    return tuple(entry for suite in suites() for entry in suite.entries)


def in_suite_order(tasks: Iterable[str]) -> list[str]:
    """Sort names of tasks by suite; other tasks come last, in their given order."""
    order = {entry.name: index for index, entry in enumerate(all_entries())}
    return sorted(tasks, key=lambda task: order.get(task, len(order)))


def find_suite(name: str) -> Suite:
    """Return the suite of this name; case does not matter."""
    if name.lower() not in _SUITES:
        raise UsageError(f"Unknown suite {name!r}. {nearest(name, _SUITES)}")
    return _suite(name.lower())


def known_task(name: str) -> TaskEntry | None:
    """Return the same as `find_task`, but None for an unknown name."""
    return _index().get(_key(name))


def find_task(name: str) -> TaskEntry:
    """Return a task by name or alias; case, hyphens, underscores and spaces do not matter."""
    if entry := known_task(name):
        return entry
    if name.lower() in _SUITES:
        raise UsageError(f"{name!r} is a suite; name one task of it.")
    nano = (entry.aliases[0] for entry in _suite("nano").entries)
    names = (*(entry.name for entry in all_entries()), *nano, *_SUITES)
    raise UsageError(
        f"Unknown task {name!r}. {nearest(name, names)}\n"
        "`r2med tasks` lists them; a folder of your own is given as a path, e.g. ./my-task."
    )


def registered_task(name: str) -> TaskEntry | None:
    """Return the task with exactly this name; None for a local task."""
    return next((entry for entry in all_entries() if entry.name == name), None)


def resolve(text: str, local_tasks: Mapping[str, Path] | None = None) -> list[TaskEntry | Path]:
    """Return the tasks in a comma-separated list of tasks, suites, `All`, FOLDER or FOLDER#SPLIT.

    A registered name comes before a folder of the same name; write ./Biology for the folder. `All`
    means the eight R2MED tasks, as in the reference implementation. A folder whose subfolders are
    tasks means all of these tasks. `local_tasks` maps names that tables show to their folders.
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError("No task was named. Give a task, a suite (full, nano, demo) or a folder.")
    items: list[TaskEntry | Path] = []
    for part in names:
        path, lowered = user_path(part), part.lower()
        if lowered in _SUITES or lowered == "all":
            items += _suite("full" if lowered == "all" else lowered).entries
        elif entry := known_task(part):
            items.append(entry)
        elif split_selection(part)[0].is_dir():
            items += task_folders(path)
        elif local_tasks and part in local_tasks:
            items.append(local_tasks[part])
        elif part in load_plugins().tasks:
            items += task_folders(_registered_folder(load_plugins().tasks[part]))
        elif part.startswith((".", "/", "~")) or path.exists() or "\\" in part:
            find_source(path)  # says that it is a file, or is not there
        else:
            items.append(find_task(part))
    return list(dict.fromkeys(items))


def _registered_folder(entry: RegistryEntry) -> Path:
    """Return the folder of a task that a plugin or the registry file adds."""
    path = entry.fields.get("path")
    if not isinstance(path, str) or set(entry.fields) - {"path", "description"}:
        raise UsageError(
            f'{entry.where}: expected path = "FOLDER" and optionally a description, found '
            f"{', '.join(entry.fields) or 'nothing'}."
        )
    return (entry.folder or Path()) / path


def group_by_suite(names: Sequence[str]) -> Sequence[str]:
    """Return the name of a suite if `names` are exactly its tasks; otherwise `names` itself."""
    complete_suites = (
        s.name for s in suites() if {entry.name for entry in s.entries} == set(names)
    )
    return next(([name] for name in complete_suites), names)


def _key(name: str) -> str:
    return name.strip().lower().translate(str.maketrans("", "", "-_ "))


@cache
def _index() -> dict[str, TaskEntry]:
    return {_key(name): entry for entry in all_entries() for name in (entry.name, *entry.aliases)}


@cache
def _suite(name: str) -> Suite:
    manifest = _read(f"{name}.toml")
    facts, lock = manifest["suite"], _read(f"{name}.lock.toml")
    rows = [row | lock.get(row["name"], {}) for row in manifest["task"]]
    edition = f", edition {facts['edition']}" if "edition" in facts else ""
    return Suite(name, facts["title"] + edition, tuple(_entry(row, facts) for row in rows))


@cache
def _read(file: str) -> dict[str, Any]:
    path = MANIFESTS / file
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _entry(row: Mapping[str, Any], suite: Mapping[str, Any]) -> TaskEntry:
    source = row.get("source", row["name"])
    like = next(
        field_or_row
        for field_or_row in (row, *_read("full.toml")["task"])
        if field_or_row["name"] == source
    )
    hub = row.get("hub")
    shared = {name: like[name] for name in ("family", "scenario", "kind", "purpose")}
    values = {
        **suite,
        **shared,
        **row,
        "suite": suite["name"],
        "source": source,
        "aliases": tuple(row.get("aliases", ())),
        "hub": HubSource(**hub) if hub else None,
        "positives": row.get("positives_per_query", {}),
        "unknown": (*row.get("unknown", ()), *suite.get("unknown", ())),
        "elsewhere": tuple(like.get("elsewhere", ())) if hub else (),
    }
    field_names = [field_or_row.name for field_or_row in fields(TaskEntry)]
    return TaskEntry(**{name: value for name, value in values.items() if name in field_names})
