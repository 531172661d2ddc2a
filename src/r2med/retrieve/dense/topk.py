"""Exact nearest neighbours: blocked matrix products, of which only candidates are ever sorted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
Source = Callable[[int, int], Matrix]
"""Rows `start` to `stop` of the documents' matrix, as float32."""
Score = Callable[[int, int], Matrix]
"""Scores of all queries with documents `start` to `stop`."""

_MOST_QUERIES = 1024
_SMALLEST_BLOCK = 1024
_LARGEST_BLOCK = 8192


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
        found = top_scored(
            lambda first, last, part=part: part @ documents(first, last).T,  # type: ignore[misc]
            (len(part), count),
            depth=depth,
            block=_block_size(part, memory),
        )
        best[start : start + len(part)], scores[start : start + len(part)] = found
    return best, scores


def top_scored(
    score: Score, shape: tuple[int, int], *, depth: int, block: int
) -> tuple[NDArray[np.int64], Matrix]:
    """As `top`, with scores by any rule, asked for by blocks of documents.

    All that reaches a query's depth-th best score so far is kept, and only that is sorted: after
    the first block few scores reach it, so a block costs little more than its scores.
    """
    rows, count = shape
    depth = min(depth, count)
    pool = _Pool(rows, depth)
    floor = np.full(rows, -np.inf, dtype=np.float32)
    for start in range(0, count if depth else 0, block):
        stop = min(start + block, count)
        scores = score(start, stop)
        if start == 0 and stop - start > depth:
            floor = np.partition(scores, stop - start - depth, axis=1)[:, stop - start - depth]
        found, columns = np.nonzero(scores >= floor[:, None])
        pool.add(found, columns + start, scores[found, columns])
        floor = pool.floor(floor)
    return pool.best()


class _Pool:
    """Candidates of all queries as flat columns, cut back to the best `depth` after each block."""

    def __init__(self, queries: int, depth: int) -> None:
        self.queries = queries
        self.depth = depth
        self.rows = np.zeros(0, dtype=np.int64)
        self.documents = np.zeros(0, dtype=np.int64)
        self.scores = np.zeros(0, dtype=np.float32)

    def add(self, rows: NDArray[np.int64], documents: NDArray[np.int64], scores: Matrix) -> None:
        rows = np.concatenate([self.rows, rows])
        documents = np.concatenate([self.documents, documents])
        scores = np.concatenate([self.scores, scores])
        order = np.lexsort((documents, -scores, rows))
        rows = rows[order]
        places = np.arange(len(rows)) - np.searchsorted(rows, np.arange(self.queries))[rows]
        kept = places < self.depth
        self.rows, order = rows[kept], order[kept]
        self.documents, self.scores = documents[order], scores[order]

    def floor(self, before: Matrix) -> Matrix:
        """The depth-th best score of each query that has so many, else what it was."""
        ends = np.searchsorted(self.rows, np.arange(self.queries), side="right")
        full = np.diff(ends, prepend=0) == self.depth
        floor = before.copy()
        floor[full] = self.scores[ends[full] - 1]
        return floor

    def best(self) -> tuple[NDArray[np.int64], Matrix]:
        shape = (self.queries, self.depth)
        return self.documents.reshape(shape), self.scores.reshape(shape)


def _block_size(queries: Matrix, memory: int) -> int:
    """Documents a block: their vectors, the scores and the comparison must fit the budget."""
    a_document = 4 * queries.shape[1] + 5 * len(queries)
    return int(np.clip(memory // max(1, a_document), _SMALLEST_BLOCK, _LARGEST_BLOCK))
