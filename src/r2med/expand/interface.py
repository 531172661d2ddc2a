"""What an expander promises: bound to a task it has an identity, and turns queries into forms.

A pipeline calls, in this order:

    expander = build(fields, conditions)     fields of the registry entry, options applied
    bound = expander.on(task, finders)       decides where the generations come from
    bound.identity                           part of the result's key; no model is asked
    expansion = bound.expand()               generates what is not on disk yet
    runs = [search_forms(searcher, task.queries, forms, depth=d) for forms in expansion.variants]

More than one variant (`[combine=fuse]`) means: one run each, fused by reciprocal rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from r2med.expand.expanded import Expansion
from r2med.tasks.task import Task


@dataclass(frozen=True)
class Passage:
    """A document that a search found, with its text."""

    document_id: str
    text: str


class Finder(Protocol):
    """Search in one task's corpus for an expander that reads before it writes."""

    @property
    def identity(self) -> Mapping[str, object]:
        """What decides its rankings; known without preparing the corpus."""
        ...

    def __call__(self, texts: Sequence[str], *, depth: int) -> list[list[Passage]]:
        """The best passages for each text; the corpus is prepared on the first call."""
        ...


#: From a task and the text of a retriever (such as `bm25`) to a finder in its corpus.
Finders = Callable[[Task, str], Finder]


class BoundExpander(Protocol):
    """An expander for one task."""

    @property
    def identity(self) -> Mapping[str, object]:
        """Everything that decides the forms, as JSON values; no model is asked for it."""
        ...

    @property
    def notices(self) -> tuple[str, ...]:
        """What a reader of the scores must know, such as which file the texts come from."""
        ...

    def expand(self) -> Expansion:
        """The expanded queries; whatever a model answers is on disk the moment it arrives."""
        ...


class Expander(Protocol):
    """A configured method and model, not yet bound to a task."""

    def on(self, task: Task, finders: Finders) -> BoundExpander:
        """Bind to a task: find its generations, or decide to make them."""
        ...
