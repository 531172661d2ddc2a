"""What the BM25 tests share: fixtures, small corpora, and the published entries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from r2med.retrieve.bm25 import Bm25Retriever, find_analyzer
from r2med.settings import parse_settings
from r2med.systems.registry import entries
from r2med.tasks.task import Corpus, Queries, Task
from tests.building import judgements_of, texts

FIXTURES = Path(__file__).parent / "fixtures"


@cache
def fixture(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))
    return data


def terms(text: str, analyzer: str = "lucene") -> list[str]:
    return find_analyzer(analyzer).analyze(texts(text)).row(0)


def variant(name: str, **options: str) -> Bm25Retriever:
    return parse_settings(Bm25Retriever, entries()[name].override(options).fields, name=name)


def queries_of(asked: Mapping[str, str]) -> Queries:
    return Queries.of(list(asked), list(asked.values()))


def task_of(documents: Sequence[tuple[str, str]], asked: Mapping[str, str]) -> Task:
    """A task whose document ids may repeat."""
    return Task(
        name="small",
        suite=None,
        corpus=Corpus(texts(*(i for i, _ in documents)), texts(*(t for _, t in documents))),
        queries=queries_of(asked),
        judgements=judgements_of({query: {documents[0][0]: 1} for query in asked}),
        source=Path(),
    )
