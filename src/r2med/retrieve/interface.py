"""What a first stage promises: prepare a task's corpus once, then search it as often as wanted.

An expanded query is searched in another form: lexical retrievers take one text, dense ones the mean
of the vectors of one or more. A generation method says both, because the published methods
combine differently for each.
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
    """A corpus made ready for searching."""

    def search(self, queries: Queries, *, depth: int) -> Run:
        """The best `depth` documents of every query, best first, in the retriever's own order."""

    def facts(self) -> Mapping[str, object]:
        """What really ran, as JSON values for the record: inputs as seen, counts, reuse."""


@dataclass(frozen=True)
class SearchOutput:
    """A run, and what searching used."""

    run: Run
    facts: Mapping[str, object] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)


@runtime_checkable
class MeteredSearcher(Protocol):
    """A searcher that encodes texts, and says for each search what that used."""

    def facts(self) -> Mapping[str, object]:
        """Return what preparing the corpus did."""

    @property
    def usage(self) -> Usage:
        """What preparing the corpus used."""

    def search_queries(self, queries: Queries, *, depth: int) -> SearchOutput:
        """Search with the queries as they are."""

    def search_forms(self, forms: Sequence[QueryForm], *, depth: int) -> SearchOutput:
        """Search with expanded queries: a query's vector is the mean of its parts' vectors."""


class Retriever(Protocol):
    """A configured first stage, not yet bound to a corpus."""

    @property
    def identity(self) -> Mapping[str, object]:
        """What decides its rankings besides the settings it was built from, as JSON values.

        Settings enter a result's key by themselves; files that were read, and versions of what was
        computed from them, must stand here. A model of the caller's own has no settings, so its
        identity says everything.
        """

    def prepare(self, task: Task) -> Searcher:
        """Index or encode the corpus, or take a cached index of exactly this corpus.

        The whole task is given because instructions are worded after its kind.
        """


@dataclass(frozen=True)
class Part:
    """One text of a query whose vector enters the mean.

    `generated` marks text of a language model: an encoder puts the query instruction before it only
    where its registry entry says so (the published inst, grit and nv do, the others do not).
    """

    text: str
    generated: bool = False


@dataclass(frozen=True)
class QueryForm:
    """One query as it is searched for."""

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
        column = pa.array([texts[name] for name in queries.ids.to_pylist()], type=pa.large_string())
        queries = replace(queries, texts=column)
    return SearchOutput(searcher.search(queries, depth=depth))
