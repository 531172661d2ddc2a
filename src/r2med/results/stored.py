"""What is stored, read for a report: damaged results are named and left out, never fatal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from r2med.errors import DamagedError, R2MedError
from r2med.results.published import is_micro
from r2med.results.result import Result
from r2med.results.store import Store
from r2med.tasks.registry import TaskEntry, find_task

_NOTICE = "differs from the manifest"


def stored_results(
    folder: Path, tell: Callable[[str], None], *, suite: str | None = None
) -> list[Result]:
    """Every readable result under a results folder, or of one suite in it, newest first."""
    store, found = Store(folder), []
    for place in store.folders():
        if suite is not None and place.parent.parent.name != suite:
            continue
        try:
            found.append(store.read(place))
        except DamagedError as problem:
            tell(f"{problem} It is left out; evaluate again to rebuild it.")
    return sorted(found, key=lambda result: result.record.created, reverse=True)


def measured_value(result: Result, metric: str) -> float | None:
    """The figure that compares with a published one: NanoR2MED's recall is micro recall."""
    if is_micro(result.suite, metric):
        return result.record.micro.get(metric)
    return result.metrics.get(metric)


def other_data(result: Result) -> str | None:
    """Why a result may not be held against published figures; None when its data is the task's."""
    entry = _entry(result)
    if entry is None:
        return f"{result.task} is a folder of your own, not verified data"
    for notice in result.record.task.notices:
        if _NOTICE in notice:
            return notice.removesuffix(" Scores may not compare with published ones.")
    have = {"documents": result.record.task.documents, "queries": result.record.task.queries}
    wrong = [
        f"{have[name]:,} {name} instead of {wanted:,}"
        for name, wanted in entry.counts.items()
        if have.get(name, wanted) != wanted
    ]
    return f"The data of {entry.name} {_NOTICE}: {', '.join(wrong)}." if wrong else None


def _entry(result: Result) -> TaskEntry | None:
    if result.suite is None:
        return None
    try:
        return find_task(result.task)
    except R2MedError:
        return None
