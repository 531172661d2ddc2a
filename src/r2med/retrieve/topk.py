"""The best documents of every query, exactly: only scores that can be among them are sorted.

Documents of one text share its vector, so texts are ranked first and then spread over documents.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.runs import Run
from r2med.runs.run import offsets_of, places_of
from r2med.tasks.task import Task

Matrix = NDArray[np.float32]
Source = Callable[[int, int], Matrix]
"""Rows `start` to `stop` of the documents' matrix, as float32."""
Score = Callable[[int, int], Matrix]
"""Scores of all queries with documents `start` to `stop`."""

_MOST_QUERIES = 1024
_SMALLEST_BLOCK = 1024
_LARGEST_BLOCK = 65536
_GROUPS = 4
"""Groups of documents for each that is wanted: more make a higher floor and cost more."""


def top(
    queries: Matrix, documents: Source, count: int, *, depth: int, memory: int
) -> tuple[NDArray[np.int64], Matrix]:
    """The `depth` best documents of every query by dot product, and the products, best first.

    Ties go to the earlier document. Both arrays are (queries, min(depth, count)).
    """
    depth = min(depth, count)
    best = np.zeros((len(queries), depth), dtype=np.int64)
    scores = np.zeros((len(queries), depth), dtype=np.float32)
    for start in range(0, len(queries), _MOST_QUERIES):
        part = queries[start : start + _MOST_QUERIES]
        rows = slice(start, start + len(part))
        # Vectors of a block of documents, their scores and the comparison must fit the budget.
        a_document = 4 * part.shape[1] + 5 * len(part)
        fitting = np.clip(memory // max(1, a_document), _SMALLEST_BLOCK, _LARGEST_BLOCK)
        best[rows], scores[rows] = top_scored(
            lambda first, last, part=part: part @ documents(first, last).T,  # type: ignore[misc]
            (len(part), count),
            depth=depth,
            block=int(fitting),
        )
    return best, scores


def top_scored(
    score: Score, shape: tuple[int, int], *, depth: int, block: int
) -> tuple[NDArray[np.int64], Matrix]:
    """As `top`, with scores by any rule, asked for by blocks of documents."""
    queries, count = shape
    places = np.zeros((queries, 0), dtype=np.int64)
    scores = np.zeros((queries, 0), dtype=np.float32)
    for start in range(0, count, block):
        fresh = score(start, min(start + block, count))
        best = np.array([best_places(row, depth) for row in fresh], dtype=np.int64)
        best = best.reshape(queries, min(depth, fresh.shape[1]))
        places = np.concatenate([places, best + start], axis=1)
        scores = np.concatenate([scores, np.take_along_axis(fresh, best, 1)], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
        places = np.take_along_axis(places, order, 1)
        scores = np.take_along_axis(scores, order, 1)
    return places, scores


def best_places(scores: NDArray[np.floating], depth: int) -> NDArray[np.int64]:
    """The places of the `depth` highest scores, best first; of equal ones the earlier place.

    Only scores above one that at least `depth` documents are known to reach are sorted: as many
    groups of documents hold one.
    """
    depth = min(depth, len(scores))
    if not depth:
        return np.zeros(0, dtype=np.int64)
    groups = _GROUPS * depth
    size = len(scores) // groups
    grouped = scores[: size * groups].reshape(size, groups)
    reaching = grouped.max(axis=0) if size > 1 else scores
    floor = np.partition(reaching, -depth)[-depth]
    places = np.flatnonzero(scores > floor)
    ranked: NDArray[np.int64] = places[np.argsort(-scores[places], kind="stable")[:depth]]
    lacking = depth - len(ranked)
    if not lacking:
        return ranked
    return np.concatenate([ranked, np.flatnonzero(scores == floor)[:lacking]])


def spread_over(
    distinct: NDArray[np.int64], texts: NDArray[np.int64], scores: Matrix, depth: int
) -> tuple[NDArray[np.int64], Matrix]:
    """From distinct texts to the documents that have them, which share the text's score.

    `distinct` says which text each document has; a text of -1 is none. Documents are in order of
    score, then of the corpus; a list with fewer than the others ends in -2.
    """
    count = int(distinct.max()) + 1 if len(distinct) else 0
    order = np.argsort(distinct, kind="stable")
    if count == len(order):
        return np.where(texts >= 0, order[texts], -2), scores
    starts = np.searchsorted(distinct[order], np.arange(count + 1))
    documents = np.full((len(texts), min(depth, len(order))), -2, dtype=np.int64)
    spread = np.zeros(documents.shape, dtype=np.float32)
    for row, (every, every_score) in enumerate(zip(texts, scores, strict=True)):
        best, best_scores = every[every >= 0], every_score[every >= 0]
        owners = np.concatenate(
            [order[:0], *(order[starts[text] : starts[text + 1]] for text in best)]
        )
        shared = np.repeat(best_scores, starts[best + 1] - starts[best])
        first = np.lexsort((owners, -shared))[: documents.shape[1]]
        documents[row, : len(first)], spread[row, : len(first)] = owners[first], shared[first]
    return documents, spread


def run_of(
    ids: pa.Array, task: Task, documents: NDArray[np.int64], scores: Matrix, depth: int
) -> Run:
    """A run of the best documents, without the one that bears the query's own id, as published."""
    own = places_of(ids, task.corpus.document_ids)
    kept = (documents != own[:, None]) & (documents >= 0)
    kept &= np.cumsum(kept, axis=1) <= depth
    return Run(
        query_ids=ids,
        document_ids=task.corpus.document_ids,
        offsets=offsets_of(kept.sum(axis=1)),
        documents=documents[kept].astype(np.int32),
        scores=scores[kept].astype(np.float64),
    )
