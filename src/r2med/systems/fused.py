"""Several parts of a system whose runs become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from r2med.errors import UsageError
from r2med.retrieve.fusion import Fusion
from r2med.runs import Run
from r2med.settings import identity_of
from r2med.systems.retrieval import Retrieval
from r2med.systems.stage import Part, Stage, Work, in_tie_order
from r2med.tasks.task import Task

#: Raised when equal members would be fused into another run.
_VERSION = 2


@dataclass(frozen=True)
class Fused:
    """Members in the order they were named, and how they are fused."""

    name: str
    members: tuple[Part, ...]
    fusion: Fusion
    depth: int

    def __post_init__(self) -> None:
        """Refuse weights that do not fit the members."""
        given = len(self.fusion.weights)
        if given not in (0, len(self.members)):
            raise UsageError(
                f"{self.name}: {given} weights for {len(self.members)} members, expected one each."
            )

    def identity(self, task: Task) -> Mapping[str, object]:
        """The members' identities, in any order unless weighted, and the method."""
        fusion = self.fusion.on(task.suite)
        members = [dict(member.stage.identity(task)) for member in self.members]
        weighted = bool(fusion.weights)
        return {
            "fusion": identity_of(fusion),
            "version": _VERSION,
            "depth": self.depth,
            "members": members if weighted else sorted(members, key=repr),
        }

    def ties(self, task: Task) -> str:
        """trec_eval's; the Nano protocol scores fused lists in their own order."""
        return "list" if task.suite == "nano" else "trec"

    def run(self, work: Work) -> Run:
        """Get every member's run, then fuse."""
        runs = [work.member(member, work) for member in self.members]
        return self.fuse(runs, work)

    def fuse(self, runs: Sequence[Run], work: Work) -> Run:
        """Fuse one run per member, each in the order in which it is measured."""
        stages = [member.stage for member in self.members]
        with work.ledger.stage("fuse", self.name):
            return self.fusion.on(work.task.suite).fuse(
                [
                    in_tie_order(run, stage, work.task)
                    for run, stage in zip(runs, stages, strict=True)
                ],
                depth=self.depth,
                filled=[fills(stage) for stage in stages],
            )


def fills(stage: Stage) -> bool:
    """Whether a stage fills its lists up with documents that match nothing, as published BM25s do.

    A rank among such documents says nothing, so fusion leaves them out.
    """
    from r2med.systems.expanding import Expanding

    if isinstance(stage, Expanding):
        return fills(stage.first.stage)
    return isinstance(stage, Retrieval) and stage.entry.fields.get("unmatched") == "fill"
