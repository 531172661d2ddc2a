"""Data of the pages: stored results and task data, read once and reloaded when files change.

Every request looks for new results and reads only those, so a new result appears when a page is
reloaded. A damaged result is listed as such, and all others are shown.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa
from markupsafe import Markup

from r2med.answer.store import FOLDER as ANSWERS
from r2med.errors import MissingError, R2MedError, UsageError, nearest
from r2med.execution.resources import log_warning
from r2med.explore.render import LabelledLink, Link
from r2med.explore.sharing import local_name, name_local_task
from r2med.results.diagnosis.diagnose import Scene, diagnose_ranking
from r2med.results.diagnosis.findings import TaskDiagnosis
from r2med.results.identities import describe_difference
from r2med.results.index import EditCheck, FolderContent, folder_times, read_results
from r2med.results.leaderboard import Leaderboard, leaderboard, own_suite
from r2med.results.overlap import AUDITS, StoredAudit, stored_audits
from r2med.results.published_data import has_published_data
from r2med.results.record import BENCHMARK, RUN_FILE, Result, added_judgements
from r2med.results.select import Ranking, ResultSet
from r2med.results.store import LOCAL
from r2med.results.versions import StoredSystem, Version, group_systems
from r2med.runs import Run
from r2med.storage import release_memory
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
from r2med.tasks.task import SAMPLE, Task

if TYPE_CHECKING:
    from r2med.explore.pages.task import Counted
    from r2med.retrieve.bm25.retriever import Bm25Retriever, Bm25Searcher

T = TypeVar("T")
#: Corpora and their terms stay in memory for this many tasks; a full task takes 100 to 200 MB.
_TASKS, _SCENES, _SEARCHERS = 4, 2, 1
_BOARDS, _RUNS, _LISTS, _DIAGNOSES, _OVERLAPS = 64, 64, 250, 64, 64
#: Rows of a leaderboard with intervals, costs and tests, which need the scores of every query.
DETAILED_ROWS = 50
_ABSENT = "The texts of this task were not at hand when this site was written."
_LEFT_OUT = "This site leaves out the texts of queries and documents. About names their licences."


class Cache(Generic[T]):
    """A cache of the most recently used values; threads that need the same value make it once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key; `make` makes a missing value. Errors are not cached."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            making = self._making.setdefault(key, threading.Lock())
        with making:
            try:
                with self._lock:
                    if key in self._values:
                        return self._values[key]
                value = make()
                with self._lock:
                    self._values[key] = value
                    while len(self._values) > self._limit:
                        self._values.popitem(last=False)
                return value
            finally:
                with self._lock:
                    self._making.pop(key, None)


class Names(dict[str, str]):
    """The display name of every system: its label, or its spec if it has no label."""

    def __missing__(self, system: str) -> str:
        return system


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The results folder at one moment; `state` changes whenever a file in the folder does."""

    library: Library
    results: tuple[Result, ...] = ()
    """The stored results, newest first."""
    damaged: Mapping[Path, str] = field(default_factory=dict)
    """The folders of results that cannot be read, each with the problem."""
    audits: tuple[StoredAudit, ...] = ()
    damaged_audits: tuple[str, ...] = ()
    state: int = hash(())
    stamps: Mapping[Path, Hashable] = field(default_factory=dict)
    """For the folder of each result, a value that changes whenever the result is written again."""
    texts: bool = True
    """Whether pages may show the texts of queries and documents."""
    public: bool = False
    """Whether the pages are for other people; then they contain no path of this machine."""

    _systems: dict[str | None, list[StoredSystem]] = field(default_factory=dict)

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that have a result; registered tasks are in their published order."""
        return tuple(in_suite_order(sorted({result.task for result in self.results})))

    @cached_property
    def names(self) -> Names:
        """The display names of all systems."""
        return Names((result.system, result.name) for result in reversed(self.results))

    @cached_property
    def own(self) -> Mapping[str, Path]:
        """The local tasks that have results, each with the folder of its data."""
        return ResultSet(self.results, "").local_tasks

    @cached_property
    def suites(self) -> Mapping[str, Suite]:
        """All suites by name, preceded by the local tasks as a suite if they have results."""
        local = [own_suite(self.own)] if self.own else []
        return {suite.name: suite for suite in (*local, *suites())}

    def suite_of(self, name: str) -> str | None:
        """Return the suite of a task; None for a sample of a task."""
        entry = registered_task(name)
        return entry.suite if entry else LOCAL if name in self.own else None

    @property
    def suite(self) -> str:
        """The suite to show by default: of the newest result, else local tasks, else R2MED."""
        names = {entry.name for entry in suites()}
        stored = (result.suite for result in self.results if result.suite in names)
        return next(stored, None) or (LOCAL if self.own else "full")

    def find_system(self, text: str) -> str:
        """Return the spec of the system that has this label; other texts stay unchanged."""
        if text in self.names:
            return text
        labelled = (system for system, name in self.names.items() if name == text)
        return next(labelled, text)

    def of_task(
        self, name: str, metric: str | None = None, *, any_version: bool = True
    ) -> dict[str, Result]:
        """Return the result of every system on a task, by spec, the best nDCG@10 first.

        The result is from the version of the system that the leaderboard shows. If that version
        lacks the task, another version is used, unless `any_version` is false: comparisons over
        several tasks must not mix versions. Results on other data than the published data (or else
        the newest) and results without `metric` are left out.
        """
        on_task = [result for result in self.results if result.task == name]
        if not on_task:
            return {}
        published = (result for result in on_task if has_published_data(result))
        data = next(published, on_task[0]).data
        chosen: dict[str, Result] = {}
        for system in self.systems(on_task[0].suite):
            versions = system.versions if any_version else (system.chosen,)
            results = (version.result(name, data) for version in versions)
            result = next(filter(None, results), None)
            if result is not None and (metric is None or metric in result.metrics):
                chosen.setdefault(result.system, result)
        ranked = sorted(chosen.values(), key=lambda result: -result.metrics.get("ndcg@10", 0.0))
        return {result.system: result for result in ranked}

    def version_notices(self, results: Iterable[Result]) -> list[str]:
        """Return a sentence per stored version of the same systems that is not in `results`."""
        by_key: dict[str, list[Result]] = {}
        for result in results:
            by_key.setdefault(result.system_key, []).append(result)
        suite_names = {result.suite for group in by_key.values() for result in group}
        stored = [system for suite in suite_names for system in self.systems(suite)]
        notices = []
        for system in stored:
            for version in system.versions if len(system.versions) > 1 else ():
                group = by_key.get(version.key, [])
                for alternative in system.versions:
                    on_both = [result for result in group if result.task in alternative.tasks]
                    if alternative is not version and on_both:
                        notices.append(
                            _describe_version(system.name, on_both, version, alternative)
                        )
        return notices

    def unjudged_queries(self, results: Sequence[Result]) -> list[str]:
        """Return the unjudged queries that all of these results on one task have ranked."""
        if not results or all(
            result.summary.queries <= result.summary.judged_queries for result in results
        ):
            return []
        runs = [self.library.ranked_run(result) for result in results]
        scored = set(results[0].scores.query_ids.to_pylist())
        ranked = [set(run.query_ids.to_pylist()) for run in runs]
        return [
            query_id
            for query_id in runs[0].query_ids.to_pylist()
            if query_id not in scored and all(query_id in queries for queries in ranked)
        ]

    def systems(self, suite: str | None) -> list[StoredSystem]:
        """Return the systems with results in a suite; `suite` None means the local tasks."""
        if suite not in self._systems:
            of_suite = [result for result in self.results if result.suite == suite]
            tasks = {result.task for result in of_suite}
            self._systems[suite] = group_systems(of_suite, tasks)
        return self._systems[suite]

    def board(self, suite: str, **choice: Any) -> Leaderboard:
        """Return the leaderboard of a suite; `choice` are arguments of `leaderboard`.

        In a large leaderboard, only the best rows have intervals, costs and tests.
        """
        choice = {name: value for name, value in choice.items() if value}
        sources: Any = {
            "results": self.results,
            "audits": self.audits,
            "tell": lambda message: None,
        }
        of_suite = (stored for stored in self.results if (stored.suite or LOCAL) == suite)
        results = tuple((stored.folder, self.stamps.get(stored.folder)) for stored in of_suite)
        audits = tuple((stored.path, stored.created) for stored in self.audits)
        return self.library.boards.get(
            (results, audits, suite, *sorted(choice.items())),
            lambda: _trim_memory(leaderboard(suite, detail=DETAILED_ROWS, **choice, **sources)),
        )

    def data_of(self, name: str, results: Mapping[str, Result]) -> tuple[Task | None, str]:
        """Return the task and the reason why its texts are not shown (empty if they are shown).

        The task is None if its data is not here or is not the data that the results were made on.
        """
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
    """A results folder and the data of its tasks; all methods are thread-safe."""

    def __init__(
        self,
        folder: str | Path,
        *,
        root: str | Path | None = None,
        tasks: str | None = None,
        judgements: str = BENCHMARK,
    ) -> None:
        """Open a results folder.

        Args:
            folder: The results folder.
            root: Folder of task data.
            tasks: Folders of local data that are not where results say.
            judgements: Judgements that scores are measured with: benchmark, all, review or a set.
        """
        self.folder = Path(folder)
        self.judgements = judgements
        self.root = root
        self.boards: Cache[Leaderboard] = Cache(_BOARDS)
        self.lists: Cache[tuple[str, Markup]] = Cache(_LISTS)
        self.counted: Cache[Counted] = Cache(_BOARDS)
        task_folders = resolve(tasks) if tasks else []
        self._own = {
            local_name(name): folder
            for name, folder in zip(task_names(task_folders), task_folders, strict=True)
            if isinstance(folder, Path)
        }
        self._lock = threading.Lock()
        self._checked: Hashable = None
        self._edits = EditCheck({})
        self._current = Snapshot(self)
        self._tasks: Cache[Task] = Cache(_TASKS)
        self._scenes: Cache[Scene] = Cache(_SCENES)
        self._runs: Cache[Run] = Cache(_RUNS)
        self._diagnoses: Cache[TaskDiagnosis] = Cache(_DIAGNOSES)
        self._overlaps: Cache[Mapping[str, float]] = Cache(_OVERLAPS)
        self._searchers: Cache[Bm25Searcher] = Cache(_SEARCHERS)

    def snapshot(self) -> Snapshot:
        """Return the present results; the same snapshot as before if no file has changed."""
        with self._lock:
            times = folder_times(self.folder)
            other_stamps = self._other_stamps()
            is_unchanged = times is not None and (times, other_stamps) == self._checked
            if is_unchanged and not self._edits.is_edited():
                return self._current
            content = read_results(self.folder)
            self._edits = EditCheck(content.stamps)
            state = hash((*content.stamps.items(), *content.damaged.items(), other_stamps))
            if state != self._current.state:
                is_stored = self.judgements == BENCHMARK
                problems: list[str] = []
                self._current = Snapshot(
                    self,
                    tuple(self._reuse(content) if is_stored else self._rescore(content)),
                    content.damaged,
                    tuple(stored_audits(self.folder, problems.append)),
                    tuple(problems),
                    state,
                    content.stamps,
                )
                other_stamps = self._other_stamps()
            self._checked = (times, other_stamps)
            return self._current

    def label(self, link: Link) -> Link:
        """Return links that show added judgements on every page; `link` if there are none."""
        if self.judgements == BENCHMARK:
            return link
        names = added_judgements(self.snapshot().results)
        return LabelledLink(link, names or f"{BENCHMARK} + {self.judgements}")

    def _rescore(self, content: FolderContent) -> Iterator[Result]:
        """Return the results with scores from added judgements; stored scores stay unchanged."""
        from r2med.judge.rescore import rescore_results

        root = None if self.root is None else Path(self.root)
        rescored = rescore_results(
            content.results, self.judgements, self.folder, root=root, warn=log_warning
        )
        return map(name_local_task, rescored)

    def _reuse(self, content: FolderContent) -> Iterator[Result]:
        """Yield the results; unchanged ones are those of the last snapshot, with their tables."""
        before = self._current
        earlier = {result.folder: result for result in before.results}
        for result in content.results:
            folder = result.folder
            same = folder in earlier and before.stamps.get(folder) == content.stamps[folder]
            yield earlier[folder] if same else name_local_task(result)

    def _other_stamps(self) -> Hashable:
        """Return a value that changes when audits, answers, judgements or task data change."""
        audits = sorted((self.folder / AUDITS).glob("*/*.json"))
        names = (*(entry.name for entry in all_entries()), *self._own, *self._current.own)
        data = (folder for name in names if (folder := self._place(name)))
        added = [
            path
            for group in ("judgements", "reviews")
            if self.judgements != BENCHMARK
            for path in sorted((self.folder / group).rglob("*.*"))
        ]
        answers = sorted((self.folder / ANSWERS).rglob("*.*"))
        return tuple(map(_stamp, (*audits, *data, *added, *answers)))

    def knows(self, name: str) -> bool:
        """Return whether a name is a registered task, or a local task whose folder is known."""
        return self._folder(name) is not None or registered_task(name) is not None

    def task(self, name: str) -> Task:
        """Return the data of a registered or local task; MissingError if it is not here."""
        folder, stored = self._folder(name), self._current.results
        if not self.has_data(name) and registered_task(name) is None:
            if any(result.task == name and result.suite == SAMPLE for result in stored):
                raise MissingError(
                    f"The texts of {name} are not shown, since it is a sample of a task.\n"
                    "Evaluate the whole task to see them: leave out --sample."
                )
            where = f"was in {folder}, which is gone" if folder else "is in no known place"
            raise MissingError(
                f"The data of {name} {where}.\n"
                "Name a folder of that name at the start: r2med explore --task FOLDER"
            )
        hashes = (result.data for result in stored if result.task == name)
        return self._tasks.get(
            (name, folder, next(hashes, None)),
            lambda: _trim_memory(load_task(folder or name, name=name, root=self.root)),
        )

    def has_data(self, name: str) -> bool:
        """Return whether the files of a task are here, without reading them."""
        folder = self._place(name)
        return folder is not None and folder.is_dir()

    def scene(self, task: Task) -> Scene:
        """Return the terms of a task's corpus and queries: slow at first, then cached."""
        return self._scenes.get(task.hash, lambda: _trim_memory(Scene(task)))

    def diagnosis(self, result: Result, task: Task, results: Sequence[Result]) -> TaskDiagnosis:
        """Return why a result misses positives of its task; the diagnosis is cached."""
        key = (result.folder, result.created, task.hash)
        ranking = Ranking(result.system, self.ranked_run(result), result)
        scene = self.scene(task)
        return self._diagnoses.get(
            key, lambda: diagnose_ranking(ranking, task, results=results, scene=scene)
        )

    def overlaps(self, task: Task) -> Mapping[str, float]:
        """Return for every judged query the largest weighted share of its terms in a positive."""
        return self._overlaps.get(task.hash, lambda: _query_overlaps(self.scene(task)))

    def prepare_searcher(self, retriever: Bm25Retriever, task: Task) -> Bm25Searcher:
        """Return the BM25 index of a task's corpus; the index is cached."""
        key = (retriever, task.hash)
        return self._searchers.get(key, lambda: _trim_memory(retriever.prepare(task)))

    def ranked_run(self, result: Result) -> Run:
        """Return the ranked lists of a result, in the order in which they were scored."""
        key = (result.folder, result.record.files.get(RUN_FILE))
        return self._runs.get(key, lambda: replace(result).ranked)

    def _place(self, name: str) -> Path | None:
        """Return the folder where the data of a task belongs, even if it does not exist."""
        entry, folder = registered_task(name), self._folder(name)
        if entry is None:
            return split_selection(str(folder))[0] if folder else None
        return Path(self.root) / name if self.root else data_folder(entry)

    def _folder(self, name: str) -> Path | None:
        """Return the folder of a local task: named at the start, else recorded in its results."""
        return self._own.get(name) or self._current.own.get(name)


def _describe_version(
    name: str, results: Sequence[Result], version: Version, alternative: Version
) -> str:
    """Return a notice that `alternative` is stored for the tasks of `results` but is not shown."""
    tasks = [result.task for result in results]
    listed = ", ".join(tasks[:3]) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")
    same_data = alternative.result(tasks[0], results[0].data)
    compared = same_data or alternative.result(tasks[0])
    difference = describe_difference(results[0], compared) if compared else ""
    return (
        f"{name}: the version of {version.created[:19]} is shown. That of "
        f"{alternative.created[:19]}, which is stored too for {listed}, is not. {difference}"
    )


def _trim_memory(value: T) -> T:
    """Return the value unchanged, after giving unused memory back to the operating system."""
    pa.default_memory_pool().release_unused()
    release_memory()
    return value


def check_systems(
    systems: Sequence[str], stored: Mapping[str, object], most: int, where: str = "here"
) -> None:
    """Raise an error for more than `most` systems, or for a system without a stored result."""
    if len(systems) > most:
        raise UsageError(f"{len(systems)} systems are chosen, expected at most {most}.")
    for system in systems:
        if system not in stored:
            raise MissingError(
                f"No result of {system[:100]!r} is stored {where}. {nearest(system, stored)}"
            )


def task_words(name: str) -> str:
    """Return the name of a task with its suite, because tasks of two suites can share a label."""
    entry = registered_task(name)
    return f"{entry.source} ({entry.suite})" if entry else name


def _stamp(path: str | Path) -> tuple[int, int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116 - asked hundreds of times on every request
    except OSError:
        return (0, 0, 0)
    return status.st_mtime_ns, status.st_size, status.st_ino


def _query_overlaps(scene: Scene) -> dict[str, float]:
    ids = scene.task.queries.ids.to_pylist()
    overlaps = {}
    for query_id, terms in zip(ids, scene.query_terms, strict=True):
        judged = scene.judged.get(query_id, {})
        rows = [scene.lexicon.row(name) for name, grade in judged.items() if grade > 0]
        present = [row for row in rows if row is not None]
        if present:
            overlaps[query_id] = float(scene.lexicon.coverage(terms)[present].max())
    return overlaps
