"""What a search goes by once queries were expanded: a text for words, and texts for vectors.

Lexical retrievers search with one text; dense ones average the vectors of one or more. A
generation method says both, because the published methods combine differently for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import pyarrow as pa

from r2med.retrieve.interface import Searcher
from r2med.runs import Run
from r2med.tasks.task import Queries


@dataclass(frozen=True)
class Part:
    """One text of a query whose vector enters the mean.

    `generated` marks text of a model: an encoder puts the query instruction before it only when
    its registry entry says so (the published inst, grit and nv do, the others do not).
    """

    text: str
    generated: bool = False


@dataclass(frozen=True)
class QueryForm:
    """One query as it is searched for."""

    query_id: str
    lexical: str
    dense: tuple[Part, ...]


@runtime_checkable
class FormSearcher(Protocol):
    """A searcher that averages: dense retrieval, and whatever else encodes texts."""

    def search_forms(self, forms: Sequence[QueryForm], *, depth: int) -> Run:
        """As `search`, each query's vector being the plain mean of its parts' vectors."""
        ...


def search_forms(
    searcher: Searcher, queries: Queries, forms: Sequence[QueryForm], *, depth: int
) -> Run:
    """Search with expanded queries; a searcher that cannot average takes the lexical text."""
    if isinstance(searcher, FormSearcher):
        return searcher.search_forms(forms, depth=depth)
    return searcher.search(lexical_queries(queries, forms), depth=depth)


def lexical_queries(queries: Queries, forms: Sequence[QueryForm]) -> Queries:
    """The queries with the text of their lexical form; ids, order and annotations stay."""
    texts = {form.query_id: form.lexical for form in forms}
    column = [texts[query_id] for query_id in queries.ids.to_pylist()]
    return replace(queries, texts=pa.array(column, type=pa.large_string()))
