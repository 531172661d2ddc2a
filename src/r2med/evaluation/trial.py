"""One typed query through a system: every stage's ranking, and what it took."""

from __future__ import annotations

from dataclasses import dataclass, replace

from r2med.errors import LimitError, UsageError
from r2med.evaluation.estimate import estimate_requests
from r2med.runs.run import sort_lists
from r2med.systems.build import System
from r2med.systems.output import StageContext, StageCost, StageOutput
from r2med.systems.stages import Stage, bind
from r2med.tasks.task import Judgements, Queries, Task

QUERY = "typed"


@dataclass(frozen=True)
class Tried:
    """A query's way through a system."""

    stages: list[tuple[str, list[tuple[str, float]]]]
    """The documents that each part of the system ranked best, the first stage first."""
    costs: tuple[StageCost, ...]
    searched: str
    """What was searched with, where the system expands queries."""


class AsksModelError(LimitError):
    """A system asks a language model, which was not allowed for this query."""


def try_query(
    system: System,
    task: Task,
    text: str,
    *,
    paid: bool,
    ask_models: bool = True,
    depth: int = 10,
) -> Tried:
    """Run one query; nothing is stored.

    Without `paid`, models that cost money are not asked; without `ask_models`, no language model.
    """
    if not text.strip():
        raise UsageError("The query is empty; type a question or a case.")
    alone = replace(task, queries=Queries.of([QUERY], [text]), judgements=Judgements.none())
    bound_stage = bind(system.stage, alone, keep=False)
    for name, estimate in () if paid and ask_models else estimate_requests(bound_stage, alone):
        if not ask_models:
            raise AsksModelError(f"{name} asks a language model.")
        if estimate.money != 0.0:
            raise LimitError(
                f"{name} asks a model that may cost money.\n"
                "Start with a limit to allow it: --max-cost 1"
            )
    stages = list[tuple[str, list[tuple[str, float]]]]()

    def run_and_show(stage: Stage, context: StageContext) -> StageOutput:
        output = stage.run(context)
        ranking = sort_lists(output.run, stage.ties(alone)).ranking(QUERY)
        stages.append((stage.text, ranking[:depth]))
        return output

    context = StageContext(alone, run_and_show, system.resources.warn)
    output = run_and_show(bound_stage, context)
    searched = (facts.get("first_lexical") for facts in output.facts.values())
    return Tried(stages, output.costs, str(next(filter(None, searched), "")))
