"""Run one typed query through a system: the ranking of every stage, and the costs."""

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
    """The rankings and costs of one query."""

    stages: list[tuple[str, list[tuple[str, float]]]]
    """For each stage, first to last: its spec, and its best documents with their scores."""
    costs: tuple[StageCost, ...]
    searched: str
    """The expanded query; empty if the system does not expand queries."""


class AsksModelError(LimitError):
    """A system calls a language model, which is not allowed for this query."""


def try_query(
    system: System,
    task: Task,
    text: str,
    *,
    paid: bool,
    ask_models: bool = True,
    depth: int = 10,
) -> Tried:
    """Run one query and return its rankings and costs; no result is stored.

    Args:
        system: The system.
        task: The task whose corpus is searched.
        text: The query.
        paid: Whether models that cost money may be called.
        ask_models: Whether language models may be called at all.
        depth: Documents per stage.

    """
    if not text.strip():
        raise UsageError("The query is empty; type a question or a case.")
    queries = Queries.of([QUERY], [text])
    one_query = replace(task, queries=queries, judgements=Judgements.none())
    bound_stage = bind(system.stage, one_query, keep=False)
    if not (paid and ask_models):
        _check_requests(bound_stage, one_query, ask_models=ask_models)
    stages: list[tuple[str, list[tuple[str, float]]]] = []

    def run_and_show(stage: Stage, context: StageContext) -> StageOutput:
        output = stage.run(context)
        ranking = sort_lists(output.run, stage.ties(one_query)).ranking(QUERY)
        stages.append((stage.text, ranking[:depth]))
        return output

    context = StageContext(one_query, run_and_show, system.resources.warn)
    output = run_and_show(bound_stage, context)
    expanded = [facts.get("first_lexical") for facts in output.facts.values()]
    searched = next((text for text in expanded if text), "")
    return Tried(stages, output.costs, str(searched))


def _check_requests(stage: Stage, task: Task, *, ask_models: bool) -> None:
    """Raise LimitError if a stage calls a model that is not allowed.

    Without `ask_models`, no stage may call a model over HTTP (AsksModelError). Otherwise, no stage
    may call a model that may cost money.
    """
    for name, estimate in estimate_requests(stage, task):
        if not ask_models:
            raise AsksModelError(f"{name} calls a language model.")
        if estimate.money != 0.0:
            raise LimitError(
                f"{name} calls a model that may cost money.\n"
                "Start with a limit to allow it: --max-cost 1"
            )
