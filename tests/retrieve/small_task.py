"""A task of a few texts, for retrievers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from r2med.tasks.registry import TaskEntry
from r2med.tasks.task import Corpus, Queries, Task
from tests.building import judgements_of, texts

DOCUMENTS = {
    "d1": "insulin therapy and dose",
    "d2": "acute heart failure with cough",
    "d3": "renal biopsy of the patient",
    "d4": "acute heart failure with cough",
    "d5": "",
}
QUERIES = {"q1": "why does the heart cough", "q2": "insulin dose"}


def own_task(
    documents: Mapping[str, str] = DOCUMENTS,
    queries: Mapping[str, str] = QUERIES,
    entry: TaskEntry | None = None,
) -> Task:
    """Data of a user's own, unless an entry is given."""
    count = len(queries)
    nothing = texts(*[None] * count)
    return Task(
        name="own",
        suite=None,
        corpus=Corpus(texts(*documents), texts(*documents.values())),
        queries=Queries(
            texts(*queries), texts(*queries.values()), nothing, nothing, nothing, nothing
        ),
        judgements=judgements_of({query: {next(iter(documents)): 1} for query in queries}),
        source=Path(),
        entry=entry,
    )
