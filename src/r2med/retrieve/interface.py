"""What a first stage promises: prepare a task's corpus once, then search it as often as wanted.

An expanded query is searched in another form: lexical retrievers take one text, dense ones the mean
of the vectors of one or more. A generation method says both, because the published methods
combine differently for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from r2med.runs import Run
from r2med.tasks.task import Queries, Task


class Searcher(Protocol):
    """A corpus made ready for searching."""

    def search(self, queries: Queries, *, depth: int) -> Run:
        """The best `depth` documents of every query, best first, in the retriever's own order."""

    def facts(self) -> Mapping[str, object]:
        """What really ran, as JSON values for the record: inputs as seen, counts, reuse."""


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


def search_forms(
    searcher: Searcher, queries: Queries, forms: Sequence[QueryForm], *, depth: int
) -> Run:
    """Search with expanded queries.

    A searcher that encodes texts has `search_forms(forms, depth=...)`, in which a query's vector is
    the plain mean of its parts' vectors; one that has not takes the lexical text.
    """
    averaging: Callable[..., Run] | None = getattr(searcher, "search_forms", None)
    if averaging is not None:
        return averaging(forms, depth=depth)
    texts = {form.query_id: form.lexical for form in forms}
    column = pa.array([texts[name] for name in queries.ids.to_pylist()], type=pa.large_string())
    return searcher.search(replace(queries, texts=column), depth=depth)
