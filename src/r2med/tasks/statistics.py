"""Counts and text statistics of a task, in the shape the manifests give them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from r2med.tasks.registry import TaskEntry
from r2med.tasks.task import Corpus, Judgements, Queries


class Measured(Protocol):
    """Anything with the three parts of a task."""

    @property
    def corpus(self) -> Corpus:
        """The documents."""

    @property
    def queries(self) -> Queries:
        """The queries."""

    @property
    def judgements(self) -> Judgements:
        """The judgements."""


def counts(task: Measured) -> dict[str, int]:
    """How many queries, documents and judgements there are."""
    return {
        "queries": len(task.queries),
        "documents": len(task.corpus),
        "judgements": len(task.judgements),
    }


def statistics(task: Measured) -> dict[str, Any]:
    """Text lengths in characters, distinct texts, and relevant documents per query."""
    return {
        "documents": len(task.corpus),
        "documents_text": _text_statistics(task.corpus.texts),
        "queries_text": _text_statistics(task.queries.texts),
        "relevant_docs": _relevance_statistics(task.judgements),
    }


def differences(
    found: Mapping[str, Any], expected: Mapping[str, Any]
) -> list[tuple[str, float, float]]:
    """(name, found, expected) of each figure that both have and that differs.

    Manifests may be partial and rounded to six digits; a figure they lack is not compared.
    """
    have = dict(figures(found))
    pairs = [(name, have[name], value) for name, value in figures(expected) if name in have]
    return [pair for pair in pairs if not math.isclose(*pair[1:], rel_tol=1e-9, abs_tol=1e-6)]


def manifest_differences(task: Measured, entry: TaskEntry) -> list[tuple[str, float, float]]:
    """Where a task is not what its manifest entry says."""
    text = differences(statistics(task), entry.statistics)
    return differences(counts(task), entry.counts) + [d for d in text if d[0] != "documents"]


def figures(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number of nested statistics, under its dotted name."""
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from figures(value, f"{prefix}{name}.")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", value


def _text_statistics(texts: pa.LargeStringArray) -> dict[str, int | float]:
    lengths = pc.utf8_length(texts).to_numpy(zero_copy_only=False)
    total = int(lengths.sum())
    return {
        "total_text_length": total,
        "min_text_length": int(lengths.min(initial=np.iinfo(np.int64).max)) if total else 0,
        "average_text_length": total / max(len(lengths), 1),
        "max_text_length": int(lengths.max(initial=0)),
        "unique_texts": len(texts.unique()),
    }


def _relevance_statistics(judgements: Judgements) -> dict[str, int | float]:
    """Over judged queries; a judged query without a relevant document counts as zero."""
    relevant = judgements.scores > 0
    queries = judgements.query_ids.dictionary_encode()
    codes = queries.indices.to_numpy(zero_copy_only=False)
    per_query = np.bincount(codes[relevant], minlength=len(queries.dictionary))
    documents = judgements.document_ids.filter(pa.array(relevant))
    return {
        "num_relevant_docs": int(per_query.sum()),
        "min_relevant_docs_per_query": int(per_query.min()) if per_query.size else 0,
        "average_relevant_docs_per_query": float(per_query.mean()) if per_query.size else 0.0,
        "max_relevant_docs_per_query": int(per_query.max()) if per_query.size else 0,
        "unique_relevant_docs": int(pc.count_distinct(documents).as_py()),
    }
