"""Find the stored results that a user means by a spec, label, key, folder or run file.

The rules are the same everywhere; `versions` has those for several results of one system. Only
summaries are read until scores or a run are needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shlex import quote

from r2med.errors import DataError, MissingError, UsageError, nearest, plural
from r2med.execution.resources import Warn, log_warning
from r2med.measure import Scores, measure
from r2med.measure.metrics import Metric
from r2med.results.identities import describe_difference
from r2med.results.index import read_results
from r2med.results.published_data import has_published_data
from r2med.results.record import RECORD_FILE, Result
from r2med.results.store import LOCAL, read_result
from r2med.results.versions import Version, group_versions, order_versions, sort_by_age
from r2med.retrieve.run_files import locate_run, restrict_to_task
from r2med.runs import Run
from r2med.runs.run import sort_lists
from r2med.systems.registry import parts_of, spell_registered
from r2med.systems.spec import parse
from r2med.tasks.registry import in_suite_order
from r2med.tasks.task import SAMPLE, Task

_RUN_SUFFIXES = (".trec", ".run", ".txt", ".res", ".gz", ".parquet")
_KEY = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True, eq=False)
class RunFileResult:
    """A run file as a result on one task; it is read and measured when needed."""

    path: Path
    loaded_task: Task
    metrics: tuple[str | Metric, ...]
    warn: Warn

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def task(self) -> str:
        """The task's name."""
        return self.loaded_task.name

    @property
    def suite(self) -> str | None:
        """The task's suite."""
        return self.loaded_task.suite

    @property
    def data(self) -> str:
        """Hash of the task's data."""
        return self.loaded_task.hash

    @cached_property
    def run(self) -> Run:
        """The ranked lists, restricted to the task; a notice says how many entries were dropped."""
        return read_run_file(self.path, self.loaded_task, self.warn)

    @property
    def ranked(self) -> Run:
        """The ranked lists in the order that is used for measuring."""
        return sort_lists(self.run)

    @cached_property
    def scores(self) -> Scores:
        """The scores of the judged queries."""
        return measure(self.run, self.loaded_task.judgements, self.metrics)


@dataclass(frozen=True, eq=False)
class SelectedSystem:
    """A system that the user named, and its result on each selected task."""

    name: str
    """The name of the system, unique among the selected systems."""
    typed_name: str
    """The name as the user typed it."""
    results: Mapping[str, Result | RunFileResult]
    version: Version | None = None
    """The version that is used; None for a run file."""
    newer_version: Version | None = None
    """A newer version of the same name that is not used because it lacks tasks."""


@dataclass(frozen=True, eq=False)
class Ranking:
    """A named run with its ties resolved; `result` is None for a run file."""

    name: str
    run: Run
    result: Result | None = None


@dataclass(frozen=True, eq=False)
class Selection:
    """The chosen result of each system on each task, all on the same data of the task."""

    systems: tuple[SelectedSystem, ...]
    tasks: tuple[str, ...]
    left_out: Mapping[str, str]
    """Reasons why tasks are left out, by task; they have results of only some of the systems."""
    notices: tuple[str, ...]

    def results(self, task: str) -> list[Result | RunFileResult]:
        """The result of each system on a task, in the order of the systems."""
        return [system.results[task] for system in self.systems]


@dataclass(frozen=True, eq=False)
class ResultSet:
    """The results in which names are looked up: those of a folder, or a list."""

    results: tuple[Result, ...]
    """Newest first."""
    source: str
    """The name of the set in messages."""

    @classmethod
    def open(
        cls,
        results: str | Path | Sequence[Result],
        warn: Warn = log_warning,
        *,
        samples: bool = False,
    ) -> ResultSet:
        """Open a results folder, or take a list of results.

        Damaged results are reported and left out. Results on samples of a task's queries belong to
        the set only if `samples`.
        """
        if not isinstance(results, str | Path):
            return cls(sort_by_age(results), "the results given")
        content = read_results(Path(results))
        for problem in content.damaged.values():
            warn(f"{problem} It is left out; evaluate again to rebuild it.")
        chosen = (result for result in content.results if samples or result.suite != SAMPLE)
        return cls(tuple(chosen), str(results))

    @cached_property
    def local_tasks(self) -> dict[str, Path]:
        """Folders of the data of local tasks, by task name."""
        folders: dict[str, Path] = {}
        for result in self.results:
            folder = result.summary.task_folder
            if result.suite is None and folder and result.task not in folders:
                folders[result.task] = (result.root / folder).resolve()
        return folders

    @cached_property
    def versions(self) -> list[Version]:
        """The versions of all systems, newest first."""
        return group_versions(self.results)

    def find_versions(self, text: str) -> list[Version]:
        """The versions of the system that a key, label or spec names; empty if there is none."""
        name = text.strip().strip('"')
        if _KEY.fullmatch(name):
            by_key = [result for result in self.results if result.summary.key.startswith(name)]
            if by_key:
                return group_versions(by_key)
        labelled = [version for version in self.versions if version.label == name]
        specs = sorted({version.spec for version in labelled})
        if len(specs) > 1:
            raise UsageError(
                f"label {text!r} names {len(specs)} systems: {', '.join(specs)}. Name one."
            )
        if labelled:
            return labelled
        spec = str(spell_registered(parse(text)).unlabelled)
        return [
            version
            for version in self.versions
            if any(
                spec in (result.system, *result.summary.other_specs) for result in version.results
            )
        ]

    def find_results(self, text: str) -> list[Result]:
        """All results of the system that a key, label or spec names, newest first."""
        versions = self.find_versions(text)
        return list(sort_by_age(result for version in versions for result in version.results))

    def find_spec(self, text: str) -> str:
        """The spec of a system; a label or key is replaced by the spec that is stored with it."""
        try:
            if all(entry for _, entry in parts_of(text)):
                return text
        except UsageError:
            pass
        for version in self.find_versions(text):
            return str(replace(parse(version.spec), label=version.label))
        return text

    def require_versions(self, text: str, tasks: Collection[str] = ()) -> list[Version]:
        """Like `find_versions`, but raise MissingError if nothing is stored.

        The error has the command to run.
        """
        matching = self.find_versions(text)
        on_tasks = [
            version for version in matching if not tasks or version.tasks & frozenset(tasks)
        ]
        if on_tasks:
            return on_tasks
        spec = str(spell_registered(parse(text)).unlabelled)
        names = {name for version in self.versions for name in (version.spec, version.name)}
        suggestion = f" {nearest(spec, names - {spec})}" if names - {spec} else ""
        where = f" on {', '.join(tasks)}" if tasks else ""
        task_option = quote(",".join(tasks)) if tasks else "TASK"
        raise MissingError(
            f"system {spec!r} has no stored result{where} in {self.source}.{suggestion}\n"
            f"Run it first: r2med eval {quote(spec)} --task {task_option}"
        )

    def select(
        self,
        systems: Sequence[str | Path | Result],
        *,
        tasks: Sequence[str] = (),
        open_run_file: Callable[[Path], RunFileResult] | None = None,
    ) -> Selection:
        """Select the results of some systems on the same tasks and data.

        Args:
            systems: Results, run files, folders of results, keys, labels or specs.
            tasks: Tasks that every system must have; without any, all tasks that they share.
            open_run_file: Opens a run file; without it run files are refused.
        """
        sides = [self._find_side(system, tasks, open_run_file) for system in systems]
        return _select(sides, tuple(tasks))

    def find_ranking(self, system: str | Path, task: Task, warn: Warn = log_warning) -> Ranking:
        """Return the ranking of one system on one task, from a stored result or a run file."""
        selection = self.select(
            [system],
            tasks=[task.name],
            open_run_file=lambda path: RunFileResult(path, task, (), warn),
        )
        for notice in selection.notices:
            warn(notice)
        return rank_system(selection.systems[0], task)

    def _find_side(
        self,
        system: str | Path | Result,
        tasks: Sequence[str],
        open_run_file: Callable[[Path], RunFileResult] | None,
    ) -> _Side:
        if isinstance(system, Result):
            return _Side(system.name, system.name, versions=tuple(group_versions([system])))
        text = str(system)
        path = find_path(text)
        if path is not None and path.is_dir():
            result = read_result(path)
            return _Side(text, text, versions=tuple(group_versions([result])))
        if path is not None:
            if open_run_file is None:
                raise UsageError(f"{text}: a run file cannot be used here; name a stored system.")
            return _Side(text, text, file=open_run_file(path))
        if looks_like_path(text) and not self._is_stored_spec(text):
            raise MissingError(f"{text}: no such run file or result folder.")
        versions = self.require_versions(text, tasks)
        return _Side(text, versions[0].name, versions=tuple(versions))

    def _is_stored_spec(self, text: str) -> bool:
        return any(text == version.spec for version in self.versions)


@dataclass(frozen=True, eq=False)
class _Side:
    """The versions or the run file that the user named with one argument."""

    typed_name: str
    name: str
    versions: tuple[Version, ...] = ()
    file: RunFileResult | None = None

    @property
    def tasks(self) -> frozenset[str]:
        if self.file is not None:
            return frozenset([self.file.task])
        return frozenset(task for version in self.versions for task in version.tasks)


def _select(sides: Sequence[_Side], tasks: tuple[str, ...]) -> Selection:
    wanted_tasks = frozenset(tasks) or _comparable_tasks(sides)
    chosen = [
        order_versions(side.versions, wanted_tasks)[0] if side.versions else None for side in sides
    ]
    notices = [
        notice
        for side, version in zip(sides, chosen, strict=True)
        if version is not None and (notice := _describe_versions(side, version, wanted_tasks))
    ]
    pairs = list(zip(sides, chosen, strict=True))
    shared = [
        task
        for task in in_suite_order(sorted(wanted_tasks))
        if all(_has_result(side, version, task) for side, version in pairs)
    ]
    left_out = {
        task: _explain_left_out(sides, chosen, task)
        for task in in_suite_order(sorted(wanted_tasks))
        if task not in shared
    }
    if tasks and left_out:
        task, reason = next(iter(left_out.items()))
        specs = [
            version.spec for version in chosen if version is not None and task not in version.tasks
        ]
        raise MissingError(
            f"{task}: {reason}.\n"
            f"Run it first: r2med eval {' '.join(map(quote, specs))} --task {quote(task)}"
        )
    if not shared:
        lines = [f"  {side.name}: {', '.join(sorted(side.tasks))}" for side in sides]
        raise MissingError(
            "the systems have no task in common:\n"
            + "\n".join(lines)
            + "\nRun them on the same tasks with r2med eval."
        )
    results = {task: _choose_same_data(sides, chosen, task) for task in shared}
    names = [side.name for side in sides]
    systems = []
    for index, (side, version) in enumerate(zip(sides, chosen, strict=True)):
        system_results = {task: results[task][index] for task in shared}
        name = side.name
        if names.count(name) > 1 and version is not None:
            name = f"{name} ({version.results[0].key})"
        newer_version = _find_newer_version(side, version, wanted_tasks)
        systems.append(
            SelectedSystem(name, side.typed_name, system_results, version, newer_version)
        )
    return Selection(tuple(systems), tuple(shared), left_out, tuple(notices))


def select_versions(versions: Sequence[Version]) -> Selection:
    """Select versions on the tasks that all of them have."""
    sides = [_Side(version.name, version.name, (version,)) for version in versions]
    return _select(sides, ())


def _comparable_tasks(sides: Sequence[_Side]) -> frozenset[str]:
    """Return all tasks of the suites for which every system has results."""
    suites = [_suites(side) for side in sides]
    shared = set.intersection(*suites) if suites else set()
    return frozenset(
        result.task for side in sides for result in _results_of(side) if result.suite in shared
    )


def _results_of(side: _Side) -> list[Result | RunFileResult]:
    if side.file is not None:
        return [side.file]
    return [result for version in side.versions for result in version.results]


def _suites(side: _Side) -> set[str | None]:
    return {result.suite for result in _results_of(side)}


def _has_result(side: _Side, version: Version | None, task: str) -> bool:
    return task in side.tasks if version is None else task in version.tasks


def _explain_left_out(sides: Sequence[_Side], chosen: Sequence[Version | None], task: str) -> str:
    reasons = []
    for side, version in zip(sides, chosen, strict=True):
        if not _has_result(side, version, task):
            suffix = " of the version used" if task in side.tasks else ""
            reasons.append(f"{side.name} has no stored result{suffix} on it")
    return " and ".join(reasons)


def _find_newer_version(
    side: _Side, chosen: Version | None, wanted_tasks: frozenset[str]
) -> Version | None:
    """Return the newest version on some of the tasks if it is newer than the chosen one."""
    if chosen is None:
        return None
    newer_versions = [
        version
        for version in side.versions
        if version.tasks & wanted_tasks and version.created > chosen.created
    ]
    return max(newer_versions, key=lambda version: version.created, default=None)


def _describe_versions(side: _Side, chosen: Version, wanted_tasks: frozenset[str]) -> str:
    """Return a notice about which of several versions is used; empty if there is only one."""
    other_versions = [
        version
        for version in side.versions
        if version is not chosen and version.tasks & wanted_tasks
    ]
    if not other_versions:
        return ""
    complete = "all" if chosen.tasks >= wanted_tasks else str(len(chosen.tasks & wanted_tasks))
    newest = max(other_versions, key=lambda version: version.created)
    tasks = sorted(newest.tasks & wanted_tasks)
    shared = [task for task in tasks if task in chosen.tasks]
    difference = ""
    if shared:
        chosen_result, newest_result = chosen.result(shared[0]), newest.result(shared[0])
        if chosen_result is not None and newest_result is not None:
            difference = f" {describe_difference(chosen_result, newest_result)}"
    listed = ", ".join(tasks[:3]) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")
    return (
        f"{side.name}: {len(other_versions) + 1} stored versions have this name. The one of "
        f"{chosen.created[:19]} is used, which has {complete} of "
        f"{plural(len(wanted_tasks), 'task')}; the one of {newest.created[:19]} on {listed} is not."
        f"{difference} Name the key or folder of a result to choose it."
    )


def _choose_same_data(
    sides: Sequence[_Side], chosen: Sequence[Version | None], task: str
) -> list[Result | RunFileResult]:
    """Return a result of each side, all on the same data: the published data if possible.

    Otherwise, the newest data that all sides have is used.
    """
    by_data: list[dict[str, Result | RunFileResult]] = []
    for side, version in zip(sides, chosen, strict=True):
        available: dict[str, Result | RunFileResult] = {}
        if version is None:
            if side.file is not None:
                available[side.file.data] = side.file
        else:
            results = [result for result in version.results if result.task == task]
            results.sort(key=lambda result: not has_published_data(result))
            for result in results:
                available.setdefault(result.data, result)
        by_data.append(available)
    for data in by_data[0]:
        if all(data in available for available in by_data):
            same = [available[data] for available in by_data]
            _check_same_queries(task, same)
            return same
    lines = [
        f"  {side.name}: data {', '.join(data[:12] for data in available)}"
        for side, available in zip(sides, by_data, strict=True)
    ]
    raise DataError(
        f"{task}: the results are of different data and cannot be paired:\n"
        + "\n".join(lines)
        + "\nRun all of them on the same files with r2med eval."
    )


def _check_same_queries(task: str, results: Sequence[Result | RunFileResult]) -> None:
    if len(results) < 2:
        return
    if len({frozenset(result.scores.query_ids.to_pylist()) for result in results}) > 1:
        raise DataError(f"{task}: the results are of different queries and cannot be paired.")


def find_local_tasks(folder: str | Path) -> dict[str, Path]:
    """Folders of the data of local tasks that have results in a folder, by task name."""
    if not Path(folder).is_dir():
        return {}
    return ResultSet(read_results(Path(folder), suite=LOCAL).results, str(folder)).local_tasks


def rank_system(system: SelectedSystem, task: Task) -> Ranking:
    """Return the ranking of a selected system on exactly this data of a task."""
    chosen = system.results[task.name]
    if isinstance(chosen, RunFileResult):
        return Ranking(system.name, chosen.ranked)
    result: Result | None = chosen
    if chosen.data != task.hash and system.version is not None:
        result = system.version.result(task.name, task.hash)
    if result is None or result.data != task.hash:
        raise DataError(
            f"{system.name}: its stored result is of {task.name}, data {chosen.data[:12]}; "
            f"{task.name} is now data {task.hash[:12]}.\n"
            f"Run it again: r2med eval {quote(chosen.system)} --task {quote(task.name)}"
        )
    return Ranking(system.name, result.ranked, result)


def read_run_file(path: Path, task: Task, warn: Warn) -> Run:
    """Read a run file and restrict it to a task; warnings count the dropped entries."""
    run, findings = locate_run(str(path)).read()
    run, findings = restrict_to_task(run, task, findings, str(path))
    for notice in findings.notices():
        warn(f"{path}: {notice}")
    return run


def looks_like_path(text: str) -> bool:
    """Whether a text looks like a path: it has a separator, or the suffix of a run file."""
    return text.endswith(_RUN_SUFFIXES) or text.startswith((".", os.sep, "~"))


def find_path(text: str) -> Path | None:
    """The run file or folder of a result that a text names; None if it names a system.

    A name without separator and suffix is always a system, even if a file has the same name.
    """
    if os.sep not in text and not text.endswith(_RUN_SUFFIXES):
        return None
    try:
        path = Path(text).expanduser()
        if path.is_file() or (path / RECORD_FILE).is_file():
            return path
    except (OSError, ValueError, RuntimeError):
        return None
    return None
