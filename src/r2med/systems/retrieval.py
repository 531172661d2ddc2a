"""First stages as parts of a system: a retriever, its entry, and the depth of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from r2med.retrieve.interface import Retriever
from r2med.runs import Run
from r2med.systems.registry import Entry
from r2med.systems.stage import Work
from r2med.tasks.task import Task


@dataclass(frozen=True)
class Retrieval:
    """One first stage, as its registry entry configures it."""

    name: str
    entry: Entry
    retriever: Retriever
    depth: int
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of the entry, as far as they may change a ranking."""

    @property
    def built(self) -> Mapping[str, object]:
        """The identity of what searches: engine, settings, and what it read besides them."""
        return {
            "engine": self.entry.engine,
            "settings": dict(self.settings),
            **self.retriever.identity,
        }

    def identity(self, task: Task) -> Mapping[str, object]:
        """The retriever's identity and the depth."""
        return {"retriever": self.built, "depth": self.depth}

    def ties(self, task: Task) -> str:
        """As the entry's protocol says; the Nano protocol orders equal scores by id, ascending."""
        nano = task.suite == "nano" and self.entry.ties == "trec"
        return "id-ascending" if nano else self.entry.ties

    def run(self, work: Work) -> Run:
        """Prepare the corpus, then search it."""
        with work.ledger.stage("index", self.name):
            searcher = self.retriever.prepare(work.task)
        with work.ledger.stage("search", self.name):
            run = searcher.search(work.task.queries, depth=self.depth)
        work.ledger.tell(self.name, searcher.facts())
        return run
