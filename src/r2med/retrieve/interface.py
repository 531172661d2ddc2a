"""What a first stage promises: prepare a task's corpus once, then search it as often as wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from r2med.runs import Run
from r2med.tasks.task import Queries, Task


class Searcher(Protocol):
    """A corpus made ready for searching."""

    def search(self, queries: Queries, *, depth: int) -> Run:
        """The best `depth` documents of every query, best first, in the retriever's own order."""
        ...

    def facts(self) -> Mapping[str, object]:
        """What really ran, as JSON values for the record: inputs as seen, counts, reuse."""
        ...


@runtime_checkable
class TermSearcher(Protocol):
    """A searcher whose scores are sums over terms, and who can tell them apart."""

    def contributions(self, query: str, document_id: str) -> dict[str, float]:
        """What each term of a query adds to a document's score."""
        ...


class Retriever(Protocol):
    """A configured first stage, not yet bound to a corpus."""

    @property
    def identity(self) -> Mapping[str, object]:
        """What decides its rankings besides the settings it was built from, as JSON values.

        Settings enter a result's key by themselves; files that were read, and versions of what was
        computed from them, must stand here. A model of the caller's own has no settings, so its
        identity says everything.
        """
        ...

    def prepare(self, task: Task) -> Searcher:
        """Index or encode the corpus, or take a cached index of exactly this corpus.

        The whole task is given because instructions are worded after its kind.
        """
        ...
