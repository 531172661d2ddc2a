"""Small tasks and runs for the Nano tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from r2med.tasks.task import Corpus, Queries, Task
from tests.building import judgements_of, texts


def task_of(
    documents: Sequence[tuple[str, str]],
    queries: Mapping[str, str],
    judged: Mapping[str, Mapping[str, int]],
    *,
    name: str = "small",
    answers: Mapping[str, str] | None = None,
    body_systems: Mapping[str, str] | None = None,
) -> Task:
    return Task(
        name=name,
        suite=None,
        corpus=Corpus(texts(*(i for i, _ in documents)), texts(*(t for _, t in documents))),
        queries=Queries(
            texts(*queries),
            texts(*queries.values()),
            _notes(queries, answers),
            _notes(queries, body_systems),
            reasonings=pa.nulls(len(queries), pa.large_string()),
            excluded_ids=pa.nulls(len(queries), pa.large_string()),
        ),
        judgements=judgements_of(judged),
        source=Path("nowhere"),
    )


def _notes(queries: Mapping[str, str], notes: Mapping[str, str] | None) -> pa.LargeStringArray:
    return texts(*((notes or {}).get(query) for query in queries))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder by its path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
