"""Select the best documents of every query exactly, without sorting all scores.

Documents with the same text share a vector, so texts are ranked first, then their documents.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.retrieve.threads import map_in_threads
from r2med.runs import Run
from r2med.runs.run import find_positions, offsets_of
from r2med.tasks.task import Task

Matrix = NDArray[np.float32]
RowReader = Callable[[int, int], Matrix]
"""Function that returns rows `start` to `stop` of the documents' matrix, as float32."""
Score = Callable[[int, int], Matrix]
"""Function that returns the scores of all queries for the documents `start` to `stop`."""

_MOST_QUERIES = 1024
_SMALLEST_BLOCK = 1024
_LARGEST_BLOCK = 65536
#: Groups of scores per requested document: more groups give a higher threshold but take longer.
_GROUPS = 4
#: Rows of scores that a thread takes at once.
_ROWS_PER_THREAD = 32
#: Fewer scores than these are selected without threads.
_FEW_SCORES = 1 << 20


def top(
    queries: Matrix, documents: RowReader, count: int, *, depth: int, memory: int
) -> tuple[NDArray[np.int64], Matrix]:
    """Return the `depth` best documents of every query by dot product, and the products.

    The best document is first; ties are in the order of the documents. Both arrays have the shape
    (queries, min(depth, count)).
    """
    depth = min(depth, count)
    best = np.zeros((len(queries), depth), dtype=np.int64)
    scores = np.zeros((len(queries), depth), dtype=np.float32)
    for start in range(0, len(queries), _MOST_QUERIES):
        part = queries[start : start + _MOST_QUERIES]
        rows = slice(start, start + len(part))
        # The vectors of a block of documents, their scores and a mask must fit in memory.
        bytes_per_document = 4 * part.shape[1] + 5 * len(part)
        block = np.clip(memory // max(1, bytes_per_document), _SMALLEST_BLOCK, _LARGEST_BLOCK)
        best[rows], scores[rows] = top_scored(
            lambda first, last, part=part: part @ documents(first, last).T,  # type: ignore[misc]
            (len(part), count),
            depth=depth,
            block=int(block),
        )
    return best, scores


def top_scored(
    score: Score, shape: tuple[int, int], *, depth: int, block: int
) -> tuple[NDArray[np.int64], Matrix]:
    """Return the best documents and their scores, like `top`, for any scoring function.

    Scores are computed for `block` documents at a time.
    """
    queries, count = shape
    documents = np.zeros((queries, 0), dtype=np.int64)
    scores = np.zeros((queries, 0), dtype=np.float32)
    for start in range(0, count, block):
        block_scores = score(start, min(start + block, count))
        best = _best_of_rows(block_scores, depth)
        documents = np.concatenate([documents, best + start], axis=1)
        scores = np.concatenate([scores, np.take_along_axis(block_scores, best, 1)], axis=1)
        if start:
            order = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
            documents = np.take_along_axis(documents, order, 1)
            scores = np.take_along_axis(scores, order, 1)
    return documents, scores


def _best_of_rows(scores: Matrix, depth: int) -> NDArray[np.int64]:
    """Return the indexes of the highest scores of every row; uses two threads for many scores."""
    rows, count = scores.shape
    best = np.empty((rows, min(depth, count)), dtype=np.int64)

    def fill(start: int) -> None:
        for row in range(start, min(start + _ROWS_PER_THREAD, rows)):
            best[row] = best_indexes(scores[row], depth)

    starts = range(0, rows, _ROWS_PER_THREAD)
    if scores.size < _FEW_SCORES:
        for start in starts:
            fill(start)
    else:
        deque(map_in_threads(fill, starts), maxlen=0)
    return best


def best_indexes(scores: NDArray[np.floating], depth: int) -> NDArray[np.int64]:
    """Return the indexes of the `depth` highest scores, best first; of ties, the lower index first.

    The maxima of groups of scores give a threshold that at least `depth` scores reach. Only scores
    above it are sorted.
    """
    depth = min(depth, len(scores))
    if not depth:
        return np.zeros(0, dtype=np.int64)
    groups = _GROUPS * depth
    group_size = len(scores) // groups
    maxima = scores  # if there are too few scores to form groups
    if group_size > 1:
        maxima = scores[: group_size * groups].reshape(group_size, groups).max(axis=0)
    # Each maximum is a score, so at least `depth` scores reach the depth-th highest maximum.
    threshold = np.partition(maxima, -depth)[-depth]
    above = np.flatnonzero(scores > threshold)
    ranked: NDArray[np.int64] = above[np.argsort(-scores[above], kind="stable")[:depth]]
    missing = depth - len(ranked)
    if not missing:
        return ranked
    # Fewer than `depth` scores are above the threshold: fill up with scores equal to it.
    return np.concatenate([ranked, np.flatnonzero(scores == threshold)[:missing]])


def spread_over(
    text_of_document: NDArray[np.int64], texts: NDArray[np.int64], scores: Matrix, depth: int
) -> tuple[NDArray[np.int64], Matrix]:
    """Replace each ranked text by all documents with that text and its score.

    Documents are sorted by score, then by their order in the corpus. If a list has fewer documents
    than the others, it is filled up with -2.

    Args:
        text_of_document: For each document, the index of its text.
        texts: For each query, the indexes of the ranked texts; -1 for none.
        scores: The scores of the texts.
        depth: Documents per query.
    """
    text_count = int(text_of_document.max()) + 1 if len(text_of_document) else 0
    by_text = np.argsort(text_of_document, kind="stable")
    if text_count == len(by_text):
        return np.where(texts >= 0, by_text[texts], -2), scores
    starts = np.searchsorted(text_of_document[by_text], np.arange(text_count + 1))
    documents = np.full((len(texts), min(depth, len(by_text))), -2, dtype=np.int64)
    document_scores = np.zeros(documents.shape, dtype=np.float32)
    for row, (row_texts, row_scores) in enumerate(zip(texts, scores, strict=True)):
        ranked, ranked_scores = row_texts[row_texts >= 0], row_scores[row_texts >= 0]
        owners = np.concatenate(
            [by_text[:0], *(by_text[starts[text] : starts[text + 1]] for text in ranked)]
        )
        owner_scores = np.repeat(ranked_scores, starts[ranked + 1] - starts[ranked])
        order = np.lexsort((owners, -owner_scores))[: documents.shape[1]]
        documents[row, : len(order)] = owners[order]
        document_scores[row, : len(order)] = owner_scores[order]
    return documents, document_scores


def drops_query_id(task: Task) -> bool:
    """Return whether dense rankings of a task omit the document with the same id as the query.

    The published protocol and the demo tasks omit it. Local tasks keep it, and so does NanoR2MED,
    whose published rankings have such documents.
    """
    return task.entry is not None and task.entry.suite in ("full", "demo")


def run_of(
    ids: pa.Array, task: Task, documents: NDArray[np.int64], scores: Matrix, depth: int
) -> Run:
    """Return a run of the best `depth` documents of every query.

    If `drops_query_id` is true, the document with the query's id is left out.
    """
    is_ranked = documents >= 0
    if drops_query_id(task):
        is_ranked &= documents != find_positions(ids, task.corpus.document_ids)[:, None]
    is_ranked &= np.cumsum(is_ranked, axis=1) <= depth
    return Run(
        query_ids=ids,
        document_ids=task.corpus.document_ids,
        offsets=offsets_of(is_ranked.sum(axis=1)),
        documents=documents[is_ranked].astype(np.int32),
        scores=scores[is_ranked].astype(np.float64),
    )
