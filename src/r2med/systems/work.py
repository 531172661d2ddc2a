"""What a stage works with: a task, its members' runs, a ledger of costs."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from r2med.retrieve.conditions import Conditions
from r2med.runs import Run
from r2med.tasks.task import Task

if TYPE_CHECKING:
    from r2med.systems.stages import Stage


@dataclass(frozen=True)
class Work:
    """The task, where costs are booked, and how a stage gets the runs of its members.

    Members are asked for through `member`, so that whoever runs a system can answer with a
    stored result instead of running them again.
    """

    task: Task
    ledger: Ledger
    member: Callable[[Stage, Work], Run]
    conditions: Conditions = field(default_factory=Conditions)

    def tell(self, name: str, message: str) -> None:
        """Say what a reader of the scores should know of a stage."""
        self.conditions.tell(f"{self.task.name}: {name}: {message}")


def run_member(part: Stage, work: Work) -> Run:
    """Run a member now; the plain answer to `Work.member`."""
    return part.run(work)


@dataclass(frozen=True)
class StageCost:
    """One piece of work; a figure that a stage cannot tell is None, never zero."""

    part: str
    """The text of the part of the system that did it."""
    stage: str
    """What was done: index, search, fuse, rerank, ..."""
    seconds: float
    texts: int | None = None
    tokens: int | None = None
    calls: int | None = None
    money: float | None = None
    """US dollars, where a price is known."""
    cached: int | None = None
    """Texts, pairs or calls that a cache answered; `texts`, `tokens`, `calls`, `money` leave them
    out."""
    cached_tokens: int | None = None
    """Tokens that the cached answers of language models took when they were made."""
    cached_money: float | None = None
    answer_seconds: float | None = None
    """The times that the answers of language models took, added up; cached ones as recorded."""
    peak_memory: int | None = None
    """Bytes: the most the process had taken by the end of the stage."""
    reused: bool = False
    """True when the work was not done again: the figures are those of the stored result."""


#: The facts of a stage that are costs, wherever a stage can tell them.
_COSTS = {each.name for each in fields(StageCost) if each.default is None} - {"peak_memory"}


@dataclass
class Ledger:
    """Costs in the order they came, and facts by member of the system."""

    costs: list[StageCost] = field(default_factory=list)
    facts: dict[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by stage, which add up over a system's members."""
        total: dict[str, float] = {}
        for cost in self.costs:
            total[cost.stage] = total.get(cost.stage, 0.0) + cost.seconds
        return total

    @contextmanager
    def stage(self, name: str, part: str = "") -> Iterator[None]:
        """Book the time of the block to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.costs.append(StageCost(part, name, spent, peak_memory=peak_memory()))

    def tell(self, part: str, facts: Mapping[str, object]) -> None:
        """Keep what a part says of itself; costs among it go to the part's last stage.

        A part that speaks after each of its stages tells its costs so far: what its earlier stages
        were booked is taken off.
        """
        self.facts[part] = facts
        earlier = [cost for cost in self.costs[:-1] if cost.part == part]
        new: dict[str, Any] = {}
        for name in _COSTS:
            total = facts.get(name)
            if isinstance(total, int | float):
                new[name] = total - sum(getattr(cost, name) or 0 for cost in earlier)
        self.costs[-1] = replace(self.costs[-1], **new)

    def include(self, other: Ledger, *, reused: bool) -> None:
        """Take over what a member of the system cost, now or when its stored result was made."""
        self.costs += [replace(cost, reused=reused or cost.reused) for cost in other.costs]
        self.facts |= other.facts


def peak_memory() -> int:
    """The most memory this process has had, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
