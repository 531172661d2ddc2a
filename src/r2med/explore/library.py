"""What the pages show: stored results and task data, read once and renewed when files change.

Results are looked for on every request and read only when new, so that a result stored meanwhile
appears on reload. A damaged one is named and the rest stays usable.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa
from markupsafe import Markup

from r2med.errors import DamagedError, DataError, MissingError, R2MedError, UsageError, nearest
from r2med.results.diagnosis.diagnose import Scene
from r2med.results.leaderboard import Leaderboard, leaderboard, own_suite
from r2med.results.lookup import newest_by_system, newest_first, own_tasks
from r2med.results.overlap import AUDITS, StoredAudit, stored_audits
from r2med.results.record import RECORD_FILE, RUN_FILE, SCORES_FILE, Result
from r2med.results.store import LOCAL, Store, read_result
from r2med.runs import Run
from r2med.tasks.fetch.provenance import data_folder
from r2med.tasks.load import load_task, task_names
from r2med.tasks.reading.source import split_selection
from r2med.tasks.registry import (
    Suite,
    all_entries,
    in_suite_order,
    registered_task,
    resolve,
    suites,
)
from r2med.tasks.task import Task

if TYPE_CHECKING:
    from r2med.explore.pages.task import Counted
    from r2med.retrieve.bm25.retriever import Bm25Retriever, Bm25Searcher

T = TypeVar("T")
#: Corpora and their terms stay in memory for so many tasks; a full task takes 100 to 200 MB.
_TASKS, _SCENES, _SEARCHERS = 4, 2, 1
_BOARDS, _RUNS, _LISTS = 64, 64, 250
_FILES = (RECORD_FILE, RUN_FILE, SCORES_FILE)
_ABSENT = "The texts of this task were not at hand when this site was written."
_LEFT_OUT = "This site leaves out the texts of queries and documents. About names their licences."


class Kept(Generic[T]):
    """The values used last, each made once however many requests wait for it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key; an error of `make` is not kept."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            value = self._values.get(key)
            if value is None:
                value = make()
            with self._lock:
                self._making.pop(key, None)
                self._values[key] = value
                self._values.move_to_end(key)
                while len(self._values) > self._limit:
                    self._values.popitem(last=False)
        return value


class Names(dict[str, str]):
    """What every system is called: its label, or its text."""

    def __missing__(self, system: str) -> str:
        return system


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The results folder at one moment; `state` changes whenever a file of it does."""

    library: Library
    results: tuple[Result, ...] = ()
    """Newest first."""
    damaged: Mapping[Path, str] = field(default_factory=dict)
    """What is wrong with the results that cannot be read, by folder."""
    audits: tuple[StoredAudit, ...] = ()
    damaged_audits: tuple[str, ...] = ()
    state: int = hash(())
    texts: bool = True
    """Whether texts of queries and documents may be shown."""
    public: bool = False
    """Whether pages are for others, so that none may name a place of this machine."""

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Tasks with a result, registered ones in their published order."""
        return tuple(in_suite_order(sorted({result.task for result in self.results})))

    @cached_property
    def names(self) -> Names:
        """What every system is called."""
        return Names((result.system, result.name) for result in reversed(self.results))

    @cached_property
    def own(self) -> Mapping[str, Path]:
        """The user's own tasks among the results, each with the folder of its data."""
        return own_tasks(self.results)

    @cached_property
    def suites(self) -> Mapping[str, Suite]:
        """What has a leaderboard: the user's own data where it has results, then the suites."""
        own = [own_suite(self.own)] if self.own else []
        return {each.name: each for each in (*own, *suites())}

    def suite_of(self, name: str) -> str | None:
        """The suite of a task; None for a sample."""
        entry = registered_task(name)
        return entry.suite if entry else LOCAL if name in self.own else None

    @property
    def suite(self) -> str:
        """The suite of the newest result, else the user's own data; R2MED without a result."""
        known = {each.name for each in suites()}
        stored = (result.suite for result in self.results if result.suite in known)
        return next(stored, None) or (LOCAL if self.own else "full")

    def of_task(self, name: str, metric: str | None = None) -> dict[str, Result]:
        """The newest result of every system on a task, the best first by nDCG@10.

        Results on other data than that of the newest one are left out, and those without `metric`.
        """
        own = [result for result in self.results if result.task == name]
        same = [each for each in own if each.data == own[0].data]
        chosen = newest_by_system(same, lambda message: None)
        ranked = sorted(chosen.values(), key=lambda each: -each.metrics.get("ndcg@10", 0.0))
        return {each.system: each for each in ranked if metric is None or metric in each.metrics}

    def board(self, suite: str, **choice: Any) -> Leaderboard:
        """The leaderboard of a suite over these results; `choice` is as in `leaderboard`."""
        choice = {name: value for name, value in choice.items() if value}
        sources: Any = {
            "results": self.results,
            "audits": self.audits,
            "tell": lambda message: None,
        }
        own = (each for each in self.results if (each.suite or LOCAL) == suite)
        results = tuple((each.folder, each.record.created, each.name) for each in own)
        audits = tuple((each.path, each.created) for each in self.audits)
        return self.library.boards.get(
            (results, audits, suite, *sorted(choice.items())),
            lambda: _released(leaderboard(suite, **choice, **sources)),
        )

    def data_of(self, name: str, results: Mapping[str, Result]) -> tuple[Task | None, str]:
        """The data that results were made on, and why texts are not shown: empty where they are."""
        try:
            task = self.library.task(name)
        except R2MedError as problem:
            return None, _ABSENT if self.public else str(problem)
        hashes = {result.data for result in results.values()}
        if hashes and task.hash not in hashes:
            why = f"The results are of data {hashes.pop()[:12]}, and the data here is "
            why += f"{task.hash[:12]}.\nRun the systems again with r2med eval."
            return None, _ABSENT if self.public else why
        return task, "" if self.texts else _LEFT_OUT


class Library:
    """A results folder and the data of its tasks; every method may be called by many threads."""

    def __init__(
        self, folder: str | Path, *, root: str | Path | None = None, tasks: str | None = None
    ) -> None:
        """`tasks` names folders of the user's own data that are not where results say."""
        self.folder = Path(folder)
        self.root = root
        self.boards: Kept[Leaderboard] = Kept(_BOARDS)
        self.lists: Kept[tuple[str, Markup]] = Kept(_LISTS)
        self.counted: Kept[Counted] = Kept(_BOARDS)
        named = resolve(tasks) if tasks else []
        places = zip(task_names(named), named, strict=True)
        self._own = {name: place for name, place in places if isinstance(place, Path)}
        self._lock = threading.Lock()
        self._read: dict[Path, tuple[Hashable, Result | str]] = {}
        self._current = Snapshot(self)
        self._store = Store(self.folder)
        self._tasks: Kept[Task] = Kept(_TASKS)
        self._scenes: Kept[Scene] = Kept(_SCENES)
        self._runs: Kept[Run] = Kept(_RUNS)
        self._searchers: Kept[Bm25Searcher] = Kept(_SEARCHERS)

    def snapshot(self) -> Snapshot:
        """The results as they are now."""
        with self._lock:
            stamps = {
                folder: tuple(_stamp(f"{folder}/{name}") for name in _FILES)
                for folder in self._store.folders()
            }
            audits = sorted((self.folder / AUDITS).glob("*/*.json"))
            names = (*(entry.name for entry in all_entries()), *self._own, *self._current.own)
            data = (place for name in names if (place := self._place(name)))
            state = hash((tuple(stamps.items()), *map(_stamp, audits), *map(_stamp, data)))
            if state != self._current.state:
                for folder, stamp in stamps.items():
                    if folder not in self._read or self._read[folder][0] != stamp:
                        self._read[folder] = stamp, _read(folder)
                read = {folder: self._read[folder][1] for folder in stamps}
                results = [each for each in read.values() if isinstance(each, Result)]
                problems: list[str] = []
                self._current = Snapshot(
                    self,
                    tuple(newest_first(results)),
                    {folder: each for folder, each in read.items() if isinstance(each, str)},
                    tuple(stored_audits(self.folder, problems.append)),
                    tuple(problems),
                    state,
                )
            return self._current

    def knows(self, name: str) -> bool:
        """Whether a name is a registered task, or one whose folder is named or recorded."""
        return self._folder(name) is not None or registered_task(name) is not None

    def task(self, name: str) -> Task:
        """The data of a registered task, or of a folder that is named or that results record."""
        folder = self._folder(name)
        if not self.has_data(name) and registered_task(name) is None:
            where = f"was in {folder}, which is gone" if folder else "is in no known place"
            raise MissingError(
                f"The data of {name} {where}.\n"
                "Name a folder of that name at the start: r2med explore --task FOLDER"
            )
        hashes = (each.data for each in self._current.results if each.task == name)
        return self._tasks.get(
            (name, folder, next(hashes, None)),
            lambda: _released(load_task(folder or name, name=name, root=self.root)),
        )

    def has_data(self, name: str) -> bool:
        """Whether a task's texts are here; its files are looked for, not read."""
        place = self._place(name)
        return place is not None and place.is_dir()

    def scene(self, task: Task) -> Scene:
        """The terms of a task's corpus and queries; some seconds for a full task, then kept."""
        return self._scenes.get(task.hash, lambda: _released(Scene(task)))

    def prepared(self, retriever: Bm25Retriever, task: Task) -> Bm25Searcher:
        """The index of a task's corpus, kept for the next document."""
        key = (retriever, task.hash)
        return self._searchers.get(key, lambda: _released(retriever.prepare(task)))

    def ranked(self, result: Result) -> Run:
        """The lists of a result in the order in which they were measured."""
        key = (result.folder, result.record.created)
        return self._runs.get(key, lambda: replace(result).ranked)

    def _place(self, name: str) -> Path | None:
        """The folder that holds the data of a task, or would."""
        entry, folder = registered_task(name), self._folder(name)
        if entry is None:
            return split_selection(str(folder))[0] if folder else None
        return Path(self.root) / name if self.root else data_folder(entry)

    def _folder(self, name: str) -> Path | None:
        """Where the user's own data is: as named at the start, else as results record it."""
        return self._own.get(name) or self._current.own.get(name)


#: As malloc.h numbers them: how many heaps there are, and what is large enough for its own pages.
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3


def frugal() -> None:
    """Give back what large values took as soon as they are gone; glibc would keep it by thread."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 17)


def _released(value: T) -> T:
    """Give the system back what was needed only to make a large value; glibc would keep it."""
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return value


def check_systems(
    systems: Sequence[str], stored: Mapping[str, object], most: int, where: str = "here"
) -> None:
    """Refuse more systems than fit side by side, and those that have no result."""
    if len(systems) > most:
        raise UsageError(f"{len(systems)} systems are chosen, expected at most {most}.")
    for system in systems:
        if system not in stored:
            raise MissingError(
                f"No result of {system[:100]!r} is stored {where}. {nearest(system, stored)}"
            )


def task_words(name: str) -> str:
    """A task's name with its suite, where labels alone would read the same."""
    entry = registered_task(name)
    return f"{entry.source} ({entry.suite})" if entry else name


def _stamp(path: str | Path) -> tuple[int, int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116 - asked hundreds of times on every request
    except OSError:
        return (0, 0, 0)
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(folder: Path) -> Result | str:
    """A result, or what is wrong with it."""
    try:
        return read_result(folder)
    except (DamagedError, DataError, OSError) as problem:
        return str(problem)
