"""The interface of retrievers: prepare a task's corpus once, then search it any number of times.

An expanded query has two forms: lexical retrievers search with one text, dense ones with the mean
of the vectors of one or more texts. A generation method defines both, because the published methods
combine texts differently for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import pyarrow as pa

from r2med.execution.usage import Usage
from r2med.runs import Run
from r2med.tasks.task import Queries, Task


class Searcher(Protocol):
    """A corpus that is ready to be searched."""

    def search(self, queries: Queries, *, depth: int) -> Run:
        """Return the best `depth` documents of every query, in the retriever's order of ties."""

    def facts(self) -> Mapping[str, object]:
        """Return JSON values for the record: model inputs, counts, reuse of caches."""


@dataclass(frozen=True)
class SearchOutput:
    """The run of a search, with facts for the record and the model usage."""

    run: Run
    facts: Mapping[str, object] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)


@runtime_checkable
class MeteredSearcher(Protocol):
    """A searcher that encodes texts, and reports the usage of every search."""

    def facts(self) -> Mapping[str, object]:
        """Return JSON values about the prepared corpus."""

    @property
    def usage(self) -> Usage:
        """The model usage of preparing the corpus."""

    def search_queries(self, queries: Queries, *, depth: int) -> SearchOutput:
        """Search with the unchanged queries."""

    def search_forms(self, forms: Sequence[QueryForm], *, depth: int) -> SearchOutput:
        """Search with expanded queries: a query's vector is the mean of its parts' vectors."""


class Retriever(Protocol):
    """A configured first stage, not yet bound to a corpus."""

    @property
    def identity(self) -> Mapping[str, object]:
        """Everything that decides the retriever's rankings, except its settings, as JSON values.

        It must contain the content of files that were read and the versions of algorithms. Settings
        are already part of a result's key. A custom model has no settings, so it must include
        everything.
        """

    def prepare(self, task: Task) -> Searcher:
        """Index or encode the corpus, or use a cached index of exactly this corpus.

        The argument is the whole task because the words of instructions depend on the task.
        """


@dataclass(frozen=True)
class Part:
    """One text of an expanded query; dense retrievers search with the mean of the texts' vectors.

    `generated` marks text of a language model. An encoder puts the query instruction before such
    text only if the encoder's registry entry says so (the published inst, grit and nv do).
    """

    text: str
    generated: bool = False


@dataclass(frozen=True)
class QueryForm:
    """An expanded query: one text for lexical retrievers, and the parts for dense retrievers."""

    query_id: str
    lexical: str
    dense: tuple[Part, ...]


def search_with(
    searcher: Searcher, queries: Queries, forms: Sequence[QueryForm] | None, *, depth: int
) -> SearchOutput:
    """Search with the queries, or with their expanded forms.

    A searcher that does not encode searches with the lexical text of a form.
    """
    if isinstance(searcher, MeteredSearcher):
        if forms is None:
            return searcher.search_queries(queries, depth=depth)
        return searcher.search_forms(forms, depth=depth)
    if forms is not None:
        texts = {form.query_id: form.lexical for form in forms}
        expanded = [texts[query_id] for query_id in queries.ids.to_pylist()]
        column = pa.array(expanded, type=pa.large_string())
        queries = replace(queries, texts=column)
    return SearchOutput(searcher.search(queries, depth=depth))
