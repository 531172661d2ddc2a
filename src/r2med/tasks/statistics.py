"""Counts and text statistics of a task, in the shape the manifests give them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.tasks.registry import TaskEntry
from r2med.tasks.task import Corpus, Judgements, Queries

_WORD = 8
#: Odd 64-bit constants: any will do, they only spread the keys of `distinct`.
_SPREAD = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64
)


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
    """Text lengths in characters, distinct texts, and relevant documents a query."""
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


def manifest_differences(
    task: Measured, entry: TaskEntry, found: Mapping[str, Any]
) -> list[tuple[str, float, float]]:
    """Where a task, with its statistics, is not what its manifest entry says."""
    text = differences(found, entry.statistics)
    return differences(counts(task), entry.counts) + [d for d in text if d[0] != "documents"]


def figures(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number of nested statistics, under its dotted name."""
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from figures(value, f"{prefix}{name}.")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", value


def distinct(texts: pa.LargeStringArray) -> int:
    """How many different texts there are.

    Hashing every byte of a corpus takes longer than reading it, so texts are first told apart
    by length and three samples of their bytes; only those that agree are compared whole.
    """
    keys = _sample_keys(texts)
    _, inverse, sizes = np.unique(keys, return_inverse=True, return_counts=True)
    alike = np.flatnonzero(sizes[inverse] > 1)
    return int((sizes == 1).sum()) + int(pc.count_distinct(texts.take(pa.array(alike))).as_py())


def _sample_keys(texts: pa.LargeStringArray) -> NDArray[np.uint64]:
    """One number a text, equal for equal texts; all texts shorter than a word share theirs."""
    _, offsets_buffer, data = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)
    offsets = offsets[texts.offset : texts.offset + len(texts) + 1]
    lengths = np.diff(offsets)
    keys = np.zeros(len(texts), dtype=np.uint64)
    long = np.flatnonzero(lengths >= _WORD)
    if long.size:
        raw = np.frombuffer(data, dtype=np.uint8)
        starts, room = offsets[long], lengths[long] - _WORD
        mixed = lengths[long].astype(np.uint64) * _SPREAD[0]
        for place, factor in zip(
            (starts, starts + room // 2, starts + room), _SPREAD[1:], strict=True
        ):
            word = raw[place[:, None] + np.arange(_WORD)].view(np.uint64)[:, 0]
            mixed = (mixed ^ word) * factor
            mixed ^= mixed >> np.uint64(29)
        keys[long] = mixed
    return keys


def _text_statistics(texts: pa.LargeStringArray) -> dict[str, int | float]:
    lengths = pc.utf8_length(texts).to_numpy(zero_copy_only=False)
    total = int(lengths.sum())
    return {
        "total_text_length": total,
        "min_text_length": int(lengths.min(initial=np.iinfo(np.int64).max)) if total else 0,
        "average_text_length": total / max(len(lengths), 1),
        "max_text_length": int(lengths.max(initial=0)),
        "unique_texts": distinct(texts),
    }


def _relevance_statistics(judgements: Judgements) -> dict[str, int | float]:
    """Over judged queries; a judged query without a relevant document counts as zero."""
    relevant = judgements.scores > 0
    queries = judgements.query_ids.dictionary_encode()
    codes = queries.indices.to_numpy(zero_copy_only=False)
    found = np.bincount(codes[relevant], minlength=len(queries.dictionary))
    documents = judgements.document_ids.filter(pa.array(relevant))
    return {
        "num_relevant_docs": int(found.sum()),
        "min_relevant_docs_per_query": int(found.min()) if found.size else 0,
        "average_relevant_docs_per_query": float(found.mean()) if found.size else 0.0,
        "max_relevant_docs_per_query": int(found.max()) if found.size else 0,
        "unique_relevant_docs": int(pc.count_distinct(documents).as_py()),
    }
