"""What every part of a system promises: to yield a run on a task, and to say what decides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

from r2med.retrieve.conditions import Conditions
from r2med.runs import Run
from r2med.runs.ordering import TieOrder, ordered
from r2med.systems.ledger import Ledger
from r2med.tasks.task import Task


class Stage(Protocol):
    """A part of a system that yields a run."""

    @property
    def depth(self) -> int:
        """How many documents a query its run holds."""
        ...

    def identity(self, task: Task) -> Mapping[str, object]:
        """Everything that decides the run on a task, as JSON values.

        It depends on the task where files beside the task's data decide: candidate lists,
        generations.
        """
        ...

    def ties(self, task: Task) -> str:
        """The tie order by which its run is measured."""
        ...

    def run(self, work: Work) -> Run:
        """Do the work on one task."""
        ...


@dataclass(frozen=True)
class Part:
    """A stage with the text that names it: a system, or a member of one that could be one."""

    text: str
    stage: Stage
    published_as: str | None = None
    deviations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Work:
    """What a stage is given: the task, where to book costs, and how to get its members' runs.

    Members are asked for through `member`, so that whoever runs a system can answer with a
    stored result instead of running them again.
    """

    task: Task
    ledger: Ledger
    member: Callable[[Part, Work], Run]
    conditions: Conditions = field(default_factory=Conditions)


def member_run(part: Part, work: Work) -> Run:
    """A member's run in the order in which it is measured, ties included.

    Ranks and the first K then mean the same to the next stage as to a reader of its scores.
    """
    return in_tie_order(work.member(part, work), part.stage, work.task)


def in_tie_order(run: Run, stage: Stage, task: Task) -> Run:
    """A stage's run in the order in which it is measured on a task."""
    return ordered(run, cast(TieOrder, stage.ties(task)))


def run_member(part: Part, work: Work) -> Run:
    """The plain answer: run the member, here and now."""
    return part.stage.run(work)
