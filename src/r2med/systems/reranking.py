"""A reranker on top of a first stage: the first K documents in a new order, the rest below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from r2med.rerank.candidates import candidate_lists
from r2med.rerank.interface import Reranker
from r2med.rerank.ordering import Tail, reordered
from r2med.runs import Run
from r2med.systems.fused import Fused
from r2med.systems.given import GivenCandidates
from r2med.systems.stage import Part, Stage, Work, member_run
from r2med.tasks.task import Task

#: Raised when equal scores would be put together into another run.
_VERSION = 1


@dataclass(frozen=True)
class Reranking:
    """`first | reranker@K`."""

    name: str
    first: Part
    reranker: Reranker
    reranked: int
    """K: how many documents of each list are put in a new order."""
    tail: Tail
    tie_order: str = "trec"
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of the reranker's entry, as far as they may change a ranking."""

    @property
    def depth(self) -> int:
        """As deep as the first stage, or K where the rest is dropped."""
        first = self.first.stage.depth
        return min(first, self.reranked) if self.tail == "drop" else first

    def identity(self, task: Task) -> Mapping[str, object]:
        """The reranker's, the first stage's, and what happens below K."""
        return {
            "reranker": {"settings": dict(self.settings), **self.reranker.identity},
            "version": _VERSION,
            "reranked": self.reranked,
            "tail": self.tail,
            "first": dict(self.first.stage.identity(task)),
        }

    def ties(self, task: Task) -> str:
        """As the entry's protocol says."""
        return self.tie_order

    def run(self, work: Work) -> Run:
        """Get the first stage's run, score its first K, put them in order."""
        first = member_run(self.first, work)
        self._tell_short_lists(first, work)
        with work.ledger.stage("rerank", self.name):
            lists = candidate_lists(first.truncated(self.reranked), work.task)
            scores = self.reranker.scores(lists)
            run = reordered(first, scores, self.reranked, self.tail)
        work.ledger.tell(self.name, self.reranker.facts())
        return run

    def _tell_short_lists(self, first: Run, work: Work) -> None:
        short = int(np.count_nonzero(first.lengths < self.reranked))
        if not short:
            return
        deeper = ""
        if self.first.stage.depth < self.reranked:
            deeper = f" A deeper first stage is written with @, as in bm25@{self.reranked}."
        work.conditions.tell(
            f"{work.task.name}: {self.name}: {short:,} of {len(first):,} lists hold fewer than "
            f"{self.reranked} documents; all they hold is reranked.{deeper}"
        )


def safeguards(stage: Stage, task: Task) -> Mapping[str, str]:
    """Positives that were put among a system's candidates on purpose, by query."""
    if isinstance(stage, GivenCandidates):
        return stage.safeguards(task)
    if isinstance(stage, Reranking):
        return safeguards(stage.first.stage, task)
    if isinstance(stage, Fused):
        return {q: d for part in stage.members for q, d in safeguards(part.stage, task).items()}
    return {}
