"""Run one registered retriever on a task, as deep as candidates need."""

from __future__ import annotations

from dataclasses import replace

from r2med.errors import UsageError
from r2med.retrieve.conditions import Conditions
from r2med.runs import Run
from r2med.systems.ledger import Ledger
from r2med.systems.pipeline import System
from r2med.systems.retrieval import Retrieval
from r2med.systems.stage import Work, run_member
from r2med.tasks.task import Task


def retrieved(spec: str, task: Task, *, depth: int, conditions: Conditions | None = None) -> Run:
    """The best `depth` documents of every query; unknown names are UsageErrors."""
    conditions = conditions or Conditions()
    stage = replace(retriever_stage(spec, conditions), depth=depth)
    return stage.run(Work(task, Ledger(), run_member, conditions))


def retriever_stage(spec: str, conditions: Conditions | None = None) -> Retrieval:
    """The retriever a text names; anything longer than one first stage is refused."""
    stage = System.from_spec(spec, conditions or Conditions()).stage
    if not isinstance(stage, Retrieval):
        raise UsageError(
            f"{spec!r} is not a single retriever, expected one name such as bm25-nano, minilm or "
            "wordllama; `r2med info systems` lists them."
        )
    return stage
