"""Versions of systems: the results with the same system key are one version.

A row, a mean or a comparison never mixes two versions. Of several versions under one name, the
newest with all tasks in question is used, or else the one with the most tasks. Of one version's
results on a task, those on the published data come first, then the newest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from r2med.results.identities import describe_difference, find_differences
from r2med.results.published_data import has_published_data
from r2med.results.record import Result


@dataclass(frozen=True, eq=False)
class Version:
    """The results of one system with one identity, newest first."""

    name: str
    """The newest label of the system, or its spec."""
    spec: str
    results: tuple[Result, ...]

    @property
    def key(self) -> str:
        """The key that the results share."""
        return self.results[0].system_key

    @property
    def label(self) -> str | None:
        """The newest label of the system."""
        return self.name if self.name != self.spec else None

    @property
    def created(self) -> str:
        """When the newest result was made."""
        return self.results[0].created

    @cached_property
    def tasks(self) -> frozenset[str]:
        """The tasks with a result."""
        return frozenset(result.task for result in self.results)

    @cached_property
    def _by_task(self) -> dict[str, list[Result]]:
        by_task: dict[str, list[Result]] = {}
        for result in self.results:
            by_task.setdefault(result.task, []).append(result)
        return by_task

    def result(self, task: str, data: str | None = None) -> Result | None:
        """Return the result on a task; with `data`, only a result on the data with this hash."""
        on_task = self._by_task.get(task, ())
        candidates = [result for result in on_task if data in (None, result.data)]
        if len(candidates) == 1:
            return candidates[0]
        published = (result for result in candidates if has_published_data(result))
        return next(published, candidates[0] if candidates else None)


@dataclass(frozen=True, eq=False)
class StoredSystem:
    """A system and all of its stored versions; the first is the one that is used."""

    name: str
    spec: str
    versions: tuple[Version, ...]

    @property
    def chosen(self) -> Version:
        """The version that is used: the one with the most requested tasks, then the newest."""
        return self.versions[0]

    def name_version(self, version: Version) -> str:
        """Return a name for another version, with the settings that differ or its date."""
        for task in sorted(self.chosen.tasks & version.tasks):
            first, second = self.chosen.result(task), version.result(task)
            if first is not None and second is not None:
                differences = find_differences(first, second).items()
                if differences:
                    values = ", ".join(f"{setting} {value}" for setting, (_, value) in differences)
                    return f"{self.name} ({values})"
        return f"{self.name} (version of {version.created[:19]})"

    @property
    def newer(self) -> tuple[Version, ...]:
        """Versions that are newer than the chosen one but have fewer tasks."""
        return tuple(
            version for version in self.versions[1:] if version.created > self.chosen.created
        )

    @property
    def older(self) -> tuple[Version, ...]:
        """Versions that are older than the chosen one."""
        return tuple(
            version for version in self.versions[1:] if version.created <= self.chosen.created
        )


def group_versions(results: Iterable[Result]) -> list[Version]:
    """Group results into versions, newest first; `results` must be sorted, newest first."""
    by_key: dict[str, list[Result]] = {}
    for result in results:
        by_key.setdefault(result.system_key, []).append(result)
    versions = []
    for group in by_key.values():
        specs = {result.system for result in group}
        spec = min(specs, key=lambda text: (len(text), text))
        label = next((result.label for result in group if result.label), None)
        versions.append(Version(label or spec, spec, tuple(group)))
    return versions


def group_systems(results: Iterable[Result], tasks: Collection[str]) -> list[StoredSystem]:
    """Group results into systems; the version with the most of `tasks` comes first.

    `results` must be sorted, newest first. A label that several specs have is followed by the spec,
    so that names are unique.
    """
    groups: dict[tuple[str, str], list[Version]] = {}
    for version in group_versions(results):
        groups.setdefault((version.name, version.spec), []).append(version)
    names = Counter(name for name, _ in groups)
    systems = []
    for (name, spec), versions in groups.items():
        unique = f"{name}: {spec}" if names[name] > 1 and name != spec else name
        systems.append(StoredSystem(unique, spec, tuple(order_versions(versions, tasks))))
    return systems


def name_versions(results: Sequence[Result]) -> dict[str, Version]:
    """Return all versions of all systems by unique names, in the order of the results.

    The version that is used has the name of the system; other names add the settings that differ.
    """
    ordered = sort_by_age(results)
    versions: dict[str, Version] = {}
    for system in group_systems(ordered, {result.task for result in ordered}):
        for version in system.versions:
            name = system.name if version is system.chosen else system.name_version(version)
            if name in versions:
                name = f"{name} ({version.key[:8]})"
            versions[name] = version
    positions = {id(result): index for index, result in enumerate(results)}

    def find_position(name: str) -> int:
        return min(positions[id(result)] for result in versions[name].results)

    return {name: versions[name] for name in sorted(versions, key=find_position)}


def describe_versions(system: StoredSystem) -> list[str]:
    """Return a sentence for each other version that has the same data of a task."""
    notes = []
    for version in system.versions[1:]:
        for task in sorted(system.chosen.tasks & version.tasks):
            first = system.chosen.result(task)
            second = version.result(task, first.data) if first else None
            if first is not None and second is not None:
                notes.append(
                    f"{system.spec} on {task}, {first.key} and {second.key}: "
                    f"{describe_difference(first, second)}"
                )
                break
    return notes


def order_versions(versions: Iterable[Version], tasks: Collection[str]) -> list[Version]:
    """Sort versions by the number of requested tasks they have, most first, then newest first."""
    wanted_tasks = frozenset(tasks)

    def rank(version: Version) -> tuple[int, str]:
        return len(version.tasks & wanted_tasks), version.created

    return sorted(versions, key=rank, reverse=True)


def sort_by_age(results: Iterable[Result]) -> tuple[Result, ...]:
    """Results, newest first."""
    return tuple(sorted(results, key=lambda result: result.created, reverse=True))
