"""An expander before a first stage: queries are written anew, then searched for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from r2med.errors import UsageError
from r2med.expand.expanded import Expansion
from r2med.expand.interface import BoundExpander, Expander, Finders
from r2med.retrieve.fusion import reciprocal_rank_fusion
from r2med.retrieve.query_forms import QueryForm, search_forms
from r2med.runs import Run
from r2med.systems.fused import Fused, fills
from r2med.systems.retrieval import Retrieval
from r2med.systems.stage import Part, Stage, Work, in_tie_order
from r2med.tasks.task import Task

Variants = Sequence[Sequence[QueryForm]]

#: Raised when equal expansions would be searched or fused into another run.
_VERSION = 2


@dataclass(frozen=True)
class Expanding:
    """`METHOD:LLM | first`; rerankers that follow see the original query."""

    name: str
    expander: Expander
    first: Part
    finders: Finders
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of the expander's entry, as far as they may change a ranking."""

    def __post_init__(self) -> None:
        """Refuse a first stage that does not search."""
        _check(self.first.stage, self.name)

    @property
    def depth(self) -> int:
        """As deep as what searches."""
        return self.first.stage.depth

    def identity(self, task: Task) -> Mapping[str, object]:
        """The expander's, on this task, and that of what searches."""
        return {
            "version": _VERSION,
            "expander": {"settings": dict(self.settings), **self.bound(task).identity},
            "first": dict(self.first.stage.identity(task)),
        }

    def ties(self, task: Task) -> str:
        """Those of what searches."""
        return self.first.stage.ties(task)

    def bound(self, task: Task) -> BoundExpander:
        """The expander on one task."""
        return self.expander.on(task, self.finders)

    def run(self, work: Work) -> Run:
        """Expand, search with every variant, and fuse where there are several."""
        with work.ledger.stage("expand", self.name):
            expansion = self.bound(work.task).expand()
        work.ledger.tell(self.name, expansion.facts())
        _tell_fallen_back(self.name, expansion, work)
        runs = _search(self.first.stage, work, expansion.variants)
        if len(runs) == 1:
            return runs[0]
        with work.ledger.stage("fuse", self.name):
            first = self.first.stage
            lists = [in_tie_order(run, first, work.task) for run in runs]
            filled = [fills(first)] * len(runs)
            return reciprocal_rank_fusion(lists, depth=self.depth, filled=filled)


def notices(stage: Stage, task: Task) -> tuple[str, ...]:
    """What a reader of a stage's scores must know, whether it runs now or ran before."""
    return stage.bound(task).notices if isinstance(stage, Expanding) else ()


def _check(stage: Stage, name: str) -> None:
    if isinstance(stage, Fused):
        for member in stage.members:
            _check(member.stage, name)
    elif not isinstance(stage, Retrieval):
        raise UsageError(
            f"{name} expands queries, so a retriever must follow it, as in '{name} | bm25' or "
            f"'{name} | (bm25 + minilm)'."
        )


def _search(stage: Stage, work: Work, variants: Variants) -> list[Run]:
    """One run a variant, the corpus being prepared once."""
    if isinstance(stage, Fused):
        members = [_search(member.stage, work, variants) for member in stage.members]
        return [stage.fuse(runs, work) for runs in zip(*members, strict=True)]
    assert isinstance(stage, Retrieval)
    with work.ledger.stage("index", stage.name):
        searcher = stage.retriever.prepare(work.task)
    with work.ledger.stage("search", stage.name):
        runs = [
            search_forms(searcher, work.task.queries, forms, depth=stage.depth)
            for forms in variants
        ]
    work.ledger.tell(stage.name, searcher.facts())
    return runs


def _tell_fallen_back(name: str, expansion: Expansion, work: Work) -> None:
    count = len(expansion.fallen_back)
    if count:
        work.conditions.tell(
            f"{work.task.name}: {name}: {count:,} of {len(expansion.queries):,} queries have no "
            "usable generation (refused or empty) and stand for themselves."
        )
