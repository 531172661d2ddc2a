"""Check whether results were made on the published data of their task, and say so in tables."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from functools import lru_cache

from r2med.results.record import Result
from r2med.tasks.registry import registered_task
from r2med.tasks.task import SAMPLE, Task

#: Follows a task's name wherever its data is not the published one.
NOT_PUBLISHED = "(not the published data)"
#: Differences that a message names.
_LISTED = 3


def describe_other_data(result: Result) -> str | None:
    """A text on how the data of a result differs from the published data; None if it does not."""
    return _describe(result.task, result.suite, result.data, result.summary.differences)


@lru_cache(4096)  # asked for every result, and few of them differ in these
def _describe(task: str, suite: str | None, data: str, differences: tuple[str, ...]) -> str | None:
    entry = registered_task(task) if suite else None
    if entry is None:
        return f"{task} is a local task, not verified data"
    if not differences and entry.data not in (None, data):
        differences = (f"other data than edition {entry.edition}",)
    if not differences:
        return None
    more = len(differences) - _LISTED
    listed = "; ".join(differences[:_LISTED]) + (f" and {more} more" if more > 0 else "")
    return f"The data differs from the manifest of {entry.name}: {listed}"


def describe_task_data(task: Task) -> str | None:
    """A text on how the data of a loaded registered task differs from the published data.

    None if the data is the published one.
    """
    if task.suite in (None, SAMPLE):
        return None
    return _describe(task.name, task.suite, task.hash, task.differences)


def mark_task(name: str, other_data: Container[str]) -> str:
    """Return the name of a task, with a mark if `other_data` contains the task."""
    return f"{name} {NOT_PUBLISHED}" if name in other_data else name


def describe_other_tasks(other_data: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for every task whose data is not the published one."""
    for task, difference in other_data.items():
        yield f"{mark_task(task, other_data)}: {difference}."


def has_published_data(result: Result) -> bool:
    """Whether a result was made on the published data of a registered task."""
    return describe_other_data(result) is None


def find_other_data(results: Iterable[Result]) -> dict[str, str]:
    """Return how the data of registered tasks differs from the published data, by task.

    Tasks with the published data are left out.
    """
    differing: dict[str, str] = {}
    for result in results:
        difference = describe_other_data(result) if result.suite not in (None, SAMPLE) else None
        if difference:
            differing[result.task] = difference
    return differing


def name_tasks(results: Iterable[Result]) -> dict[str, str]:
    """Return the names of tasks for tables, with a mark if the data is not the published data."""
    results = list(results)
    differing = find_other_data(results)
    return {result.task: mark_task(result.task, differing) for result in results}
