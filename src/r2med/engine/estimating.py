"""What systems would ask of paid models, before anything is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from r2med.expand.writing import FromModel
from r2med.remote.budget import Estimate
from r2med.systems.stages import Expanding, Fused, Reranking, Retrieval
from r2med.systems.work import Stage
from r2med.tasks.task import Task


@runtime_checkable
class Estimating(Protocol):
    """A retriever that pays for what it encodes."""

    def estimate(self, task: Task) -> Estimate:
        """What a task would use; texts that are stored already are free."""
        ...


def estimates(stage: Stage, task: Task) -> Iterator[tuple[str, Estimate, int]]:
    """For every part that asks a model: its name, what it would use, the turns it may take.

    LLM rerankers are left out: what they read depends on what the first stage finds.
    """
    match stage:
        case Retrieval(name=name, retriever=Estimating() as retriever):
            yield name, retriever.estimate(task), 1
        case Fused(members=members):
            for member in members:
                yield from estimates(member.stage, task)
        case Reranking(first=first):
            yield from estimates(first.stage, task)
        case Expanding(name=name, first=first):
            yield from _expansion(stage, task)
            yield from estimates(first.stage, task)


def _expansion(stage: Expanding, task: Task) -> Iterator[tuple[str, Estimate, int]]:
    bound = stage.expander.on(task, stage.finders)
    if isinstance(bound, FromModel):
        plan = bound.plan
        yield stage.name, bound.chat.estimate(plan.requests), plan.most_turns
