"""Get a task's candidates: those beside its data, or made here where it has none."""

from __future__ import annotations

from collections.abc import Callable

from r2med.errors import MissingError
from r2med.nano.candidates import BM25, FIRST_DEPTH, make_candidates
from r2med.nano.profiling import Profile, SubsetList, profile_of, subset_lists
from r2med.nano.retrieval import retrieved
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.given.candidates import split_of
from r2med.tasks.task import Task


def profiled(
    task: Task,
    dense: str | None,
    *,
    tell: Callable[[str], None] = lambda message: None,
) -> tuple[Profile, list[SubsetList]]:
    """The profile of a task and the lists it was drawn from.

    `dense` names the encoder for tasks without candidates; None, or one whose weights are not
    here, leaves BM25 alone, and that is told.
    """
    lists = subset_lists(task) or _made(task, dense, tell)
    return profile_of(task, lists), lists


def _made(task: Task, dense: str | None, tell: Callable[[str], None]) -> list[SubsetList]:
    conditions = Conditions(tell=tell)
    if dense is not None:
        try:
            found = make_candidates(task, dense, split=split_of(task), conditions=conditions)
            return subset_lists(task, found)
        except MissingError as problem:
            tell(f"{task.name}: no dense and no hybrid profile. {str(problem).splitlines()[0]}")
    return [("bm25", "bm25", retrieved(BM25, task, depth=FIRST_DEPTH, conditions=conditions))]
