"""One typed query through a system: every stage's ranking, and what it took."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from r2med.engine.estimating import estimates
from r2med.errors import LimitError, UsageError
from r2med.expand.writing import FromModel
from r2med.runs import Run
from r2med.systems.build import System
from r2med.systems.registry import entries
from r2med.systems.spec import Spec, Unit, parse
from r2med.systems.stages import Expanding, Reranking, bind, in_tie_order
from r2med.systems.work import Ledger, NamedStage, StageCost, Work
from r2med.tasks.task import Judgements, Queries, Task

QUERY = "typed"
#: Arguments and options that name a thing; a path or a class of Python is none.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
_GIVEN = ("run", "candidates", "custom", "own")


@dataclass(frozen=True)
class Ranked:
    """What one part of a system ranked for the query, best first."""

    part: str
    documents: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Tried:
    """A query's way through a system, the first stage first."""

    system: str
    task: str
    text: str
    stages: tuple[Ranked, ...]
    costs: tuple[StageCost, ...]
    searched: str | None
    """What was searched with, where the system expands queries."""


def try_query(system: System, task: Task, text: str, *, paid: bool, depth: int = 10) -> Tried:
    """Run one query; nothing is stored. Without `paid`, models that cost money are not asked."""
    if not text.strip():
        raise UsageError("The query is empty; type a question or a case.")
    alone = replace(task, queries=Queries.of([QUERY], [text]), judgements=Judgements.none())
    part = _unkept(bind(system.part, alone))
    if not paid:
        _refuse_paid(part, alone)
    ledger, stages = Ledger(), list[Ranked]()

    def member(each: NamedStage, work: Work) -> Run:
        run = each.stage.run(work)
        stages.append(_ranked(each, run, alone, depth))
        return run

    run = part.stage.run(Work(alone, ledger, member, system.conditions))
    stages.append(_ranked(part, run, alone, depth))
    searched = [
        facts["first_lexical"] for facts in ledger.facts.values() if "first_lexical" in facts
    ]
    return Tried(
        system=str(system),
        task=task.name,
        text=text,
        stages=tuple(stages),
        costs=tuple(ledger.costs),
        searched=str(searched[0]) if searched else None,
    )


def is_plain(system: str) -> bool:
    """Whether a text names only registered stages: no file, no folder, no class of Python."""
    try:
        return _plain(parse(system))
    except UsageError:
        return False


def _plain(part: Unit | Spec) -> bool:
    if isinstance(part, Spec):
        return all(map(_plain, (*part.fused, *part.stages)))
    entry = entries().get(part.name.lower())
    words = [value for _, value in part.options] + ([part.argument] if part.argument else [])
    known = entry is not None and entry.engine not in _GIVEN
    return known and all(_WORD.fullmatch(word) for word in words)


def _unkept(part: NamedStage) -> NamedStage:
    """The part, whose generations are not written to the shelf of its task."""
    stage = part.stage
    if isinstance(stage, Reranking):
        return replace(part, stage=replace(stage, first=_unkept(stage.first)))
    if isinstance(stage, Expanding) and isinstance(stage.on_task, FromModel):
        return replace(part, stage=replace(stage, on_task=replace(stage.on_task, keep=False)))
    return part


def _refuse_paid(part: NamedStage, task: Task) -> None:
    for name, estimate in estimates(part, task):
        if estimate.money != 0.0:
            raise LimitError(
                f"{name} asks a model that may cost money.\n"
                "Start with a limit to allow it: r2med explore --max-cost 1"
            )


def _ranked(part: NamedStage, run: Run, task: Task, depth: int) -> Ranked:
    ranking = in_tie_order(run, part.stage, task).ranking_or_empty(QUERY)
    return Ranked(part.text, tuple(ranking[:depth]))
