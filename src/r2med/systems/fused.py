"""Several parts of a system whose runs become one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from r2med.errors import UsageError
from r2med.retrieve.fusion import Fusion
from r2med.runs import Run
from r2med.settings import identity_of
from r2med.systems.stage import Part, Work, member_run
from r2med.tasks.task import Task

#: Raised when equal members would be fused into another run.
_VERSION = 1


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
        runs = [member_run(member, work) for member in self.members]
        with work.ledger.stage("fuse", self.name):
            return self.fusion.on(work.task.suite).fuse(runs, depth=self.depth)
