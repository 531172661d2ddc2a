"""The context that a stage runs in, and its output: a run with facts and costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from r2med.execution.resources import Warn, log_warning
from r2med.execution.usage import Usage
from r2med.runs import Run
from r2med.tasks.task import Task

if TYPE_CHECKING:
    from r2med.systems.stages import Stage

#: Facts for the record, by the name of the stage.
Facts = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class StageCost(Usage):
    """The time and usage of one step of a stage."""

    part: str
    """The name of the stage; empty for loading and measuring."""
    stage: str
    """The step: index, search, fuse, rerank, ..."""
    seconds: float
    """Wall time."""
    reused: bool = False
    """Whether the figures come from a stored result, because the work was not done again."""


@dataclass(frozen=True)
class StageOutput:
    """Everything that running a stage produced."""

    run: Run
    facts: Facts = field(default_factory=dict)
    """Facts by the name of the stage, including the stages that it builds on."""
    costs: tuple[StageCost, ...] = ()
    """The costs of all steps, in the order of the steps."""
    sample_runs: tuple[Run, ...] = ()
    """For an expander that fuses its samples, the run of each sample; otherwise empty."""


@dataclass(frozen=True)
class StageContext:
    """The task that a stage runs on, and access to the outputs of the stages that it uses.

    `run_member` returns these outputs; it may read a stored result instead of running a stage.
    """

    task: Task
    run_member: Callable[[Stage, StageContext], StageOutput]
    warn: Warn = log_warning
    strict: bool = False
    """Whether data warnings are errors."""

    def warn_about(self, name: str, message: str) -> None:
        """Report a warning about a stage on this task."""
        self.warn(f"{self.task.name}: {name}: {message}")


def run_member(stage: Stage, context: StageContext) -> StageOutput:
    """Run a stage even if its result is stored; a value for `StageContext.run_member`."""
    return stage.run(context)


class Stopwatch:
    """Measures the wall time of one step."""

    def __init__(self, part: str, stage: str) -> None:
        self._part = part
        self._stage = stage
        self.seconds = 0.0

    def cost(self, usage: Usage | None = None) -> StageCost:
        """Return the time of the step, with its usage."""
        usage_fields = asdict(usage) if usage else {}
        return StageCost(self._part, self._stage, self.seconds, **usage_fields)


@contextmanager
def measure_step(stage: str, part: str = "") -> Iterator[Stopwatch]:
    """Measure the wall time of a `with` block; call `cost` of the yielded value after it."""
    watch, start = Stopwatch(part, stage), time.perf_counter()
    try:
        yield watch
    finally:
        watch.seconds = time.perf_counter() - start


def merge_facts(*facts_of_stages: Facts) -> Facts:
    """Join facts of stages; a second stage of the same name is numbered, as in `listwise (2)`."""
    merged: dict[str, Mapping[str, object]] = {}
    for facts in facts_of_stages:
        for name, values in facts.items():
            unique, number = name, 1
            while unique in merged and merged[unique] != values:
                number += 1
                unique = f"{name} ({number})"
            merged[unique] = values
    return merged


def seconds_by_step(costs: Iterable[StageCost]) -> dict[str, float]:
    """Return the seconds by step, summed over equal steps, in order of first appearance."""
    total: dict[str, float] = {}
    for cost in costs:
        total[cost.stage] = total.get(cost.stage, 0.0) + cost.seconds
    return total


def mark_reused(costs: Iterable[StageCost]) -> tuple[StageCost, ...]:
    """Return the costs, marked as coming from a stored result."""
    return tuple(replace(cost, reused=True) for cost in costs)
