"""What the pages show: stored results and task data, read once and renewed when files change.

Results are looked for on every request and read only when new, so that a result stored meanwhile
appears on reload. A damaged one is named and the rest stays usable.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa

from r2med.errors import DamagedError, DataError, MissingError, R2MedError
from r2med.results.diagnosis.diagnose import Scene
from r2med.results.leaderboard import Leaderboard, leaderboard
from r2med.results.lookup import newest_by_system
from r2med.results.record import RECORD_FILE, RUN_FILE, SCORES_FILE, Result
from r2med.results.store import Store, read_result
from r2med.runs import Run
from r2med.systems.registry import members_of
from r2med.systems.spec import parse
from r2med.tasks.fetch.provenance import data_folder
from r2med.tasks.load import load_task, task_names
from r2med.tasks.registry import TaskEntry, all_entries, find_task, resolve
from r2med.tasks.task import Task

T = TypeVar("T")
#: Corpora and their terms stay in memory for so many tasks; a full task takes 100 to 200 MB.
_TASKS, _SCENES = 4, 2
_BOARDS, _RUNS = 64, 64


class Kept(Generic[T]):
    """The values used last, each made once however many requests wait for it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(
        self, key: Hashable, make: Callable[[], T], *, worth: Callable[[T], bool] = lambda _: True
    ) -> T:
        """The value of a key; an error of `make`, or a value not `worth` it, is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._values:
                    return self._values[key]
            value = make()
            with self._lock:
                self._making.pop(key, None)
                if worth(value):
                    self._values[key] = value
                while len(self._values) > self._limit:
                    self._values.popitem(last=False)
        return value


@dataclass(frozen=True)
class Damaged:
    """A stored result that cannot be read, and what is wrong with it."""

    folder: Path
    problem: str


@dataclass(frozen=True, eq=False)
class Shelf:
    """The results folder at one moment; `state` changes whenever a file of it does."""

    results: tuple[Result, ...]
    """Newest first; those of an older version are left out, as in every table."""
    damaged: tuple[Damaged, ...]
    older: int
    state: int

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks with a result, registered ones in their published order."""
        order = {entry.name: place for place, entry in enumerate(all_entries())}
        names = dict.fromkeys(result.task for result in self.results)
        return tuple(sorted(names, key=lambda name: (order.get(name, len(order)), name)))

    @cached_property
    def names(self) -> dict[str, str]:
        """What every system is called: its label, or its text."""
        return {result.system: result.name for result in reversed(self.results)}

    def members(self, system: str) -> tuple[str, ...]:
        """The parts of a system that could stand alone."""
        return tuple(str(part) for part in members_of(parse(system)))

    def of_task(self, name: str) -> dict[str, Result]:
        """The newest result of every system on a task, the best first by nDCG@10.

        Results on other data than that of the newest one are left out.
        """
        own = [result for result in self.results if result.task == name]
        same = [each for each in own if each.record.task.hash == own[0].record.task.hash]
        chosen = newest_by_system(same, lambda message: None)
        ranked = sorted(chosen.values(), key=lambda each: -each.metrics.get("ndcg@10", 0.0))
        return {result.system: result for result in ranked}


class Library:
    """A results folder and the data of its tasks; every method may be called by many threads."""

    def __init__(
        self, folder: str | Path, *, root: str | Path | None = None, tasks: str | None = None
    ) -> None:
        """`tasks` names folders of the user's own data, so that their texts can be shown."""
        self.folder = Path(folder)
        self.root = root
        self._own = _own_folders(tasks)
        self._lock = threading.Lock()
        self._read: dict[Path, tuple[Hashable, Result | Damaged]] = {}
        self._shelf = Shelf((), (), 0, hash(()))
        self._places = _Places(Store(self.folder))
        self._tasks: Kept[Task] = Kept(_TASKS)
        self._scenes: Kept[Scene] = Kept(_SCENES)
        self._boards: Kept[Leaderboard] = Kept(_BOARDS)
        self._runs: Kept[Run] = Kept(_RUNS)

    def shelf(self) -> Shelf:
        """The results as they are now."""
        with self._lock:
            stamps = self._places.stamps()
            state = hash(tuple(stamps.items()))
            if state != self._shelf.state:
                self._read = {
                    folder: self._read[folder]
                    if folder in self._read and self._read[folder][0] == stamp
                    else (stamp, _read(folder))
                    for folder, stamp in stamps.items()
                }
                self._shelf = _shelf([value for _, value in self._read.values()], state)
            return self._shelf

    def board(
        self,
        shelf: Shelf,
        suite: str,
        *,
        metric: str = "ndcg@10",
        kind: str | None = None,
        family: str | None = None,
        clean: bool = False,
    ) -> Leaderboard:
        """The leaderboard of a suite over these results; `clean` leaves out flagged tasks."""
        return self._boards.get(
            (shelf.state, suite, metric, kind, family, clean),
            lambda: _released(
                leaderboard(
                    suite,
                    metric=metric,
                    kind=kind,
                    family=family,
                    without_flagged=clean,
                    results=shelf.results,
                    tell=lambda message: None,
                )
            ),
        )

    def task(self, name: str) -> Task:
        """The data of a registered task, or of a folder that was named at the start."""
        if name not in self._own and name not in _registered():
            raise MissingError(
                f"The explorer does not know where the data of {name} is.\n"
                "Name its folder at the start: r2med explore --task FOLDER"
            )
        return self._tasks.get(name, lambda: _released(self._load(name)))

    def has_data(self, name: str) -> bool:
        """Whether a task's texts are here; its files are looked for, not read."""
        if name in self._own:
            return True
        if name not in _registered():
            return False
        if self.root is not None:
            return (Path(self.root) / name).is_dir()
        return data_folder(find_task(name)).is_dir()

    def scene(self, task: Task) -> Scene:
        """The terms of a task's corpus and queries; some seconds for a full task, then kept."""
        return self._scenes.get(task.hash, lambda: _released(Scene(task)))

    def ranked(self, result: Result) -> Run:
        """The lists of a result in the order in which they were measured."""
        key = (result.folder, result.record.created)
        return self._runs.get(key, lambda: replace(result).ranked)

    def _load(self, name: str) -> Task:
        return load_task(self._own.get(name, name), name=name, root=self.root)


def _released(value: T) -> T:
    """Give the system back what was needed only to make a large value; glibc would keep it."""
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return value


def texts_of(library: Library, name: str, results: Mapping[str, Result]) -> tuple[Task | None, str]:
    """The data that results were made on, or why their texts cannot be shown."""
    try:
        task = library.task(name)
    except R2MedError as problem:
        return None, str(problem)
    hashes = {result.record.task.hash for result in results.values()}
    if hashes and task.hash not in hashes:
        return None, (
            f"The results are of data {hashes.pop()[:12]}, and the data here is "
            f"{task.hash[:12]}: its texts would not fit.\nRun the systems again with r2med eval."
        )
    return task, ""


def known_task(library: Library, shelf: Shelf, name: str) -> bool:
    """Whether a name is a task with a result, a registered one, or a folder named at the start."""
    return name in shelf.tasks or name in _registered() or name in library._own


def entry_of(name: str) -> TaskEntry | None:
    """What the registry says of a task; None for data of the user's own."""
    return find_task(name) if name in _registered() else None


def _registered() -> frozenset[str]:
    return frozenset(entry.name for entry in all_entries())


def _own_folders(tasks: str | None) -> dict[str, Path]:
    """Folders by the names that their results have; registered tasks are known already."""
    items = resolve(tasks) if tasks else []
    names = task_names(items)
    return {name: i for name, i in zip(names, items, strict=True) if isinstance(i, Path)}


Stamp = tuple[int, int, int]
#: A folder that changed this short a time ago may change again without a new time of change.
_SETTLED = 0.1


class _Places:
    """Where results are, and what changes when a file of theirs does; quick to ask often.

    Folders are listed again when one of those above them has changed.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._above: dict[Path, Stamp] = {}
        self._files: dict[Path, tuple[Path, ...]] = {}

    def stamps(self) -> dict[Path, tuple[Stamp, ...]]:
        """The stamps of every result's files."""
        if not self._above or {path: _stamp(path) for path in self._above} != self._above:
            self._look()
        return {folder: tuple(map(_stamp, files)) for folder, files in self._files.items()}

    def _look(self) -> None:
        folders = list(self._store.folders())
        parents = {folder.parent for folder in folders}
        above = {self._store.root, *parents, *(parent.parent for parent in parents)}
        self._files = {
            folder: tuple(folder / name for name in (RECORD_FILE, RUN_FILE, SCORES_FILE))
            for folder in folders
        }
        stamps = {path: _stamp(path) for path in above}
        recent = time.time_ns() - int(_SETTLED * 1e9)
        settled = all(changed < recent for changed, _, _ in stamps.values())
        self._above = stamps if settled else {}


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(folder: Path) -> Result | Damaged:
    try:
        return read_result(folder)
    except (DamagedError, DataError, OSError) as problem:
        return Damaged(folder, str(problem))


def _shelf(read: list[Result | Damaged], state: int) -> Shelf:
    results = [each for each in read if isinstance(each, Result)]
    results.sort(key=lambda result: result.record.created, reverse=True)
    current = tuple(result for result in results if not result.record.older)
    damaged = tuple(each for each in read if isinstance(each, Damaged))
    return Shelf(current, damaged, len(results) - len(current), state)
