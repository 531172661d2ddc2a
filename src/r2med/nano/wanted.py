"""What `profile`, `card` and `exclusions` are asked about: tasks, suites, a Nano folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from r2med.nano.staging import RECORD, read_record
from r2med.tasks.load import load_task
from r2med.tasks.registry import TaskEntry, find_suite, resolve
from r2med.tasks.task import Task


@dataclass(frozen=True)
class Wanted:
    """Names to load, and the title of the group they form."""

    names: tuple[str | Path, ...]
    title: str

    def load(self, root: Path | None = None) -> Iterator[Task]:
        """The tasks, each read when its turn comes."""
        return (load_task(name, root=root) for name in self.names)


def wanted(text: str) -> Wanted:
    """Read a comma-separated list; a folder that `nano build` made stands for all its splits."""
    names: list[str | Path] = []
    found = resolve(text)
    for item in found:
        if isinstance(item, TaskEntry):
            names.append(item.name)
        elif (item / RECORD).is_file():
            names += [f"{item.resolve()}#{split}" for split in sorted(read_record(item)["tasks"])]
        else:
            names.append(item)
    return Wanted(tuple(names), _title(text, found))


def _title(text: str, found: Sequence[TaskEntry | Path]) -> str:
    entries = [item for item in found if isinstance(item, TaskEntry)]
    if len(entries) == len(found) > 1:
        suites = {entry.suite for entry in entries}
        suite = find_suite(suites.pop()) if len(suites) == 1 else None
        if suite and len(suite.entries) == len(entries):
            return suite.title
    if len(found) == 1 and isinstance(found[0], Path):
        return found[0].resolve().name
    return text
