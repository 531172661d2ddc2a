"""The opening request of each query: bare, after examples, or after what a search found."""

from __future__ import annotations

from collections.abc import Iterator

from r2med.expand.interface import Finder
from r2med.expand.method import Method
from r2med.expand.prompting import Prompt, called
from r2med.tasks.task import Task


def openings(task: Task, method: Method, prompt: Prompt, finder: Finder | None) -> list[str]:
    """The opening request for every query, in order; methods that read first search first."""
    kind = called(task.entry)
    queries = task.queries.texts.to_pylist()
    passages = _passages(queries, method, prompt, finder)
    return [
        prompt.first(kind=kind, query=query, passages=found, turns=str(method.turns))
        for query, found in zip(queries, passages, strict=True)
    ]


def _passages(
    queries: list[str], method: Method, prompt: Prompt, finder: Finder | None
) -> Iterator[str]:
    if finder is None or method.agent:
        yield from ("" for _ in queries)
        return
    for found in finder(queries, depth=method.passages):
        texts = [passage.text for passage in found]
        yield prompt.passages(texts, words=method.words) if texts else "(none was found)"
