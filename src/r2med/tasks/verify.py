"""Is the data what the manifest says? One check per fact, open where the manifest has none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from r2med.tasks.fetch.provenance import read_provenance, sha256_of, task_files
from r2med.tasks.registry import TaskEntry
from r2med.tasks.task import Task, counts, figures, statistics

Aspect = Literal["counts", "statistics", "sha256", "profile"]


@dataclass(frozen=True)
class Check:
    """One fact of one task; `passed` is None when there is nothing to compare with."""

    task: str
    aspect: Aspect
    what: str
    expected: str | int | float | None
    found: str | int | float | None
    passed: bool | None


def compared(task: Task, entry: TaskEntry, *, texts: bool = True) -> list[Check]:
    """Counts and, with `texts`, text statistics of a task against its manifest."""
    sizes, known = counts(task), dict(figures(entry.statistics))
    measured = dict(figures(statistics(task))) if texts else {}
    return [
        *(checked(entry, "counts", n, entry.counts.get(n), size) for n, size in sizes.items()),
        *(
            checked(entry, "statistics", n, known.get(n), value)
            for n, value in measured.items()
            if n not in sizes
        ),
    ]


def checked(entry: TaskEntry, aspect: Aspect, what: str, expected: Any, found: Any) -> Check:
    """A fact of the manifest beside what was found; manifests are rounded to six digits."""
    passed: bool | None = expected == found
    if expected is None or found is None:
        passed = None
    elif isinstance(expected, float) and isinstance(found, int | float):
        passed = math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-6)
    return Check(entry.name, aspect, what, expected, found, passed)


def check_files(entry: TaskEntry, folder: Path) -> list[Check]:
    """Checksums: against the manifest, else against what was recorded when it was fetched."""
    recorded = read_provenance(folder)
    checks = []
    for path, file in task_files(entry, folder).items():
        label, expected = path, entry.files.get(path, {}).get("sha256")
        if expected is None and path in recorded:
            label, expected = f"{path} (as fetched)", recorded[path].sha256
        checks.append(checked(entry, "sha256", label, expected, sha256_of(file)))
    return checks
