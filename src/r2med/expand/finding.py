"""Search in a task's corpus for expanders that read before they write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import pyarrow as pa

from r2med.expand.interface import Passage
from r2med.retrieve.interface import Retriever, Searcher
from r2med.tasks.task import Queries, Task


class CorpusFinder:
    """A retriever over one task's corpus, which is prepared when first searched."""

    def __init__(self, task: Task, retriever: Retriever, identity: Mapping[str, object]) -> None:
        self._task = task
        self._retriever = retriever
        self.identity = identity
        """What decides its rankings: the retriever's settings, and what it read."""

    def __call__(self, texts: Sequence[str], *, depth: int) -> list[list[Passage]]:
        """The best passages for each text; a document that scores nothing was not found."""
        run = self._searcher.search(_as_queries(texts), depth=depth)
        found = []
        for row in range(len(run)):
            part = slice(run.offsets[row], run.offsets[row + 1])
            hits = run.documents[part][run.scores[part] != 0.0]
            ids = run.document_ids.take(pa.array(hits)).to_pylist()
            found.append([Passage(name, self._task.document(name)) for name in ids])
        return found

    @cached_property
    def _searcher(self) -> Searcher:
        return self._retriever.prepare(self._task)


def _as_queries(texts: Sequence[str]) -> Queries:
    ids = pa.array([f"search-{place}" for place in range(len(texts))], type=pa.large_string())
    nothing = pa.nulls(len(texts), type=pa.large_string())
    return Queries(ids, pa.array(texts, type=pa.large_string()), nothing, nothing, nothing)
