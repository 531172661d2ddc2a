"""One typed query through a system: every stage's ranking, and what it took."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from r2med.engine.estimating import estimates
from r2med.errors import LimitError, UsageError
from r2med.runs import Run
from r2med.runs.run import ordered
from r2med.systems.build import System
from r2med.systems.registry import parts_of
from r2med.systems.stages import Stage, bind
from r2med.systems.work import Ledger, StageCost, Work
from r2med.tasks.task import Judgements, Queries, Task

QUERY = "typed"
#: Arguments and options that name a thing; a path or a class of Python is none.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
_GIVEN = ("run", "candidates", "custom", "own")


@dataclass(frozen=True)
class Tried:
    """A query's way through a system."""

    stages: list[tuple[str, list[tuple[str, float]]]]
    """The documents that each part of the system ranked best, the first stage first."""
    costs: list[StageCost]
    searched: str
    """What was searched with, where the system expands queries."""


def try_query(system: System, task: Task, text: str, *, paid: bool, depth: int = 10) -> Tried:
    """Run one query; nothing is stored. Without `paid`, models that cost money are not asked."""
    if not text.strip():
        raise UsageError("The query is empty; type a question or a case.")
    alone = replace(task, queries=Queries.of([QUERY], [text]), judgements=Judgements.none())
    part = bind(system.stage, alone, keep=False)
    for name, estimate in () if paid else estimates(part, alone):
        if estimate.money != 0.0:
            raise LimitError(
                f"{name} asks a model that may cost money.\n"
                "Start with a limit to allow it: r2med explore --max-cost 1"
            )
    ledger, stages = Ledger(), list[tuple[str, list[tuple[str, float]]]]()

    def ranked(each: Stage, work: Work) -> Run:
        run = each.run(work)
        ranking = ordered(run, each.ties(alone)).ranking(QUERY)
        stages.append((each.text, ranking[:depth]))
        return run

    ranked(part, Work(alone, ledger, ranked, system.conditions))
    searched = (facts.get("first_lexical") for facts in ledger.facts.values())
    return Tried(stages, ledger.costs, str(next(filter(None, searched), "")))


def is_plain(system: str) -> bool:
    """Whether a text names only registered stages: no file, no folder, no class of Python."""
    try:
        parts = parts_of(system)
    except UsageError:
        return False
    words = [value for unit, _ in parts for _, value in unit.options]
    words += [unit.argument for unit, _ in parts if unit.argument]
    known = all(entry and entry.engine not in _GIVEN for _, entry in parts)
    return known and all(_WORD.fullmatch(word) for word in words)
