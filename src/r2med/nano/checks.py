"""Do the candidates of a local NanoR2MED give the published figures? Further rows for `verify`."""

from __future__ import annotations

import math

from r2med.nano.profiling import PUBLISHED_NAMES, Profile, profile
from r2med.tasks.load import load_task
from r2med.tasks.registry import TaskEntry
from r2med.tasks.verify import Check

_DATA = {
    "min": "positives_min",
    "median": "positives_median",
    "max": "positives_max",
    "average": "positives_mean",
    "multi_positive_queries": "multi_positive_queries",
}


def check_profile(entry: TaskEntry, *, root: object = None) -> list[Check]:
    """Positives a query and the figures of every candidate subset, against the manifest."""
    found = profile(load_task(entry.name, root=root, use_copy=False))  # type: ignore[arg-type]
    checks = [
        _check(entry, f"positives.{name}", value, getattr(found.data, _DATA[name]))
        for name, value in entry.positives.items()
        if name in _DATA
    ]
    return checks + _subset_checks(entry, found)


def _subset_checks(entry: TaskEntry, found: Profile) -> list[Check]:
    checks = []
    for role, published in entry.candidates.items():
        measured = next((row for row in found.retrieval if row.role == role), None)
        figures = measured.figures() if measured else {}
        for name, key in PUBLISHED_NAMES.items():
            if key in published:
                checks.append(_check(entry, f"{role}.{name}", published[key], figures.get(name)))
    return checks


def _check(entry: TaskEntry, what: str, expected: float, found: float | None) -> Check:
    """A subset that is not here cannot be compared; published figures have six digits or more."""
    passed = None if found is None else math.isclose(expected, found, rel_tol=0, abs_tol=1e-6)
    return Check(entry.name, "profile", what, expected, found, passed)
