"""The best documents of every query, exactly: of blocks of scores only candidates are sorted.

Documents of one text share its vector, so texts are ranked first and then spread over documents.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.runs import Run
from r2med.tasks.task import Task

Matrix = NDArray[np.float32]
Source = Callable[[int, int], Matrix]
"""Rows `start` to `stop` of the documents' matrix, as float32."""
Score = Callable[[int, int], Matrix]
"""Scores of all queries with documents `start` to `stop`."""

_MOST_QUERIES = 1024
_SMALLEST_BLOCK = 1024
_LARGEST_BLOCK = 32768
_GROUPS = 4
"""Groups of documents for each that is wanted: more make a higher floor and cost more."""
_CROWD = 16
"""Candidates for each wanted document that may wait to be sorted."""


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

    All that reaches a score known to be reached `depth` times is kept, and only that is sorted,
    so that a block costs little more than its scores.
    """
    rows, count = shape
    depth = min(depth, count)
    pool = _Pool(rows, depth)
    if not depth:
        return pool.best()
    floor = _Floor(rows, depth)
    for start in range(0, count, block):
        scores = score(start, min(start + block, count))
        reached = floor.raised_by(scores)
        pool.add(scores, np.flatnonzero(scores >= reached[:, None]), start)
        pool.shrink(reached)
    return pool.best()


def spread_over(
    distinct: NDArray[np.int64], texts: NDArray[np.int64], scores: Matrix, depth: int
) -> tuple[NDArray[np.int64], Matrix]:
    """From distinct texts to the documents that have them, which share the text's score.

    `distinct` says which text each document has. Documents are in order of score, then of the
    corpus; a list with fewer than the others ends in -2.
    """
    count = int(distinct.max()) + 1 if len(distinct) else 0
    order = np.argsort(distinct, kind="stable")
    if count == len(order):
        return order[texts], scores
    starts = np.searchsorted(distinct[order], np.arange(count + 1))
    documents = np.full((len(texts), min(depth, len(order))), -2, dtype=np.int64)
    spread = np.zeros(documents.shape, dtype=np.float32)
    for row, (best, best_scores) in enumerate(zip(texts, scores, strict=True)):
        owners = np.concatenate([order[starts[text] : starts[text + 1]] for text in best])
        shared = np.repeat(best_scores, starts[best + 1] - starts[best])
        first = np.lexsort((owners, -shared))[: documents.shape[1]]
        documents[row, : len(first)], spread[row, : len(first)] = owners[first], shared[first]
    return documents, spread


def run_of(
    ids: pa.Array, task: Task, documents: NDArray[np.int64], scores: Matrix, depth: int
) -> Run:
    """A run of the best documents, without the one that bears the query's own id, as published."""
    matches = pc.index_in(ids, value_set=task.corpus.document_ids)
    own = matches.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    kept = (documents != own[:, None]) & (documents >= 0)
    kept &= np.cumsum(kept, axis=1) <= depth
    return Run(
        query_ids=ids,
        document_ids=task.corpus.document_ids,
        offsets=np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int64),
        documents=documents[kept].astype(np.int32),
        scores=scores[kept].astype(np.float64),
    )


class _Floor:
    """For each query, a score that at least `depth` of the documents seen so far reach.

    Documents are dealt into groups, of which only the best scores are known: as many groups as
    hold one so high, as many documents do.
    """

    def __init__(self, queries: int, depth: int) -> None:
        self._last = (_GROUPS - 1) * depth
        self._best = np.full((queries, _GROUPS * depth), -np.inf, dtype=np.float32)

    def raised_by(self, scores: Matrix) -> Matrix:
        """The floor once these scores are counted in."""
        queries, groups = self._best.shape
        even = scores.shape[1] // groups * groups
        if even:
            dealt = scores[:, :even].reshape(queries, -1, groups)
            np.maximum(self._best, dealt.max(axis=1), out=self._best)
        rest = scores[:, even:]
        first = self._best[:, : rest.shape[1]]
        np.maximum(first, rest, out=first)
        floor: Matrix = np.partition(self._best, self._last, axis=1)[:, self._last]
        return floor


class _Pool:
    """Candidates of all queries as flat columns, each query's in the order of documents."""

    def __init__(self, queries: int, depth: int) -> None:
        self._shape = (queries, depth)
        self._enough = _CROWD * queries * depth
        self._rows = np.zeros(0, dtype=np.int64)
        self._documents = np.zeros(0, dtype=np.int64)
        self._scores = np.zeros(0, dtype=np.float32)

    def add(self, scores: Matrix, places: NDArray[np.int64], start: int) -> None:
        """Take these places of a block of scores, whose first document has number `start`."""
        rows, columns = np.divmod(places, scores.shape[1])
        self._rows = np.concatenate([self._rows, rows])
        self._documents = np.concatenate([self._documents, columns + start])
        self._scores = np.concatenate([self._scores, scores[rows, columns]])

    def shrink(self, floor: Matrix) -> None:
        """Let go of what a raised floor leaves behind, and of ties that crowd in."""
        kept = np.flatnonzero(self._scores >= floor[self._rows])
        if len(kept) > self._enough:
            kept = np.sort(self._leading())
        self._keep(kept)

    def best(self) -> tuple[NDArray[np.int64], Matrix]:
        """The best of every query, best first."""
        self._keep(self._leading())
        return self._documents.reshape(self._shape), self._scores.reshape(self._shape)

    def _leading(self) -> NDArray[np.int64]:
        """Where the best `depth` candidates of each query are, best first."""
        queries, depth = self._shape
        order = _best_first(self._rows, self._scores)
        rows = self._rows[order]
        ranks = np.arange(len(rows)) - np.searchsorted(rows, np.arange(queries))[rows]
        leading: NDArray[np.int64] = order[ranks < depth]
        return leading

    def _keep(self, places: NDArray[np.int64]) -> None:
        self._rows = self._rows[places]
        self._documents = self._documents[places]
        self._scores = self._scores[places]


def _best_first(rows: NDArray[np.int64], scores: Matrix) -> NDArray[np.int64]:
    """Order by row, then by falling score, ties as they come.

    The bits of a float ascend as it does, those of negative ones the other way round; so row and
    score make one number, and one sort does.
    """
    bits = (scores + np.float32(0)).view(np.int32).astype(np.int64)
    ascending = np.where(bits < 0, bits ^ 0x7FFF_FFFF, bits)
    return np.argsort((rows << 32) - ascending, kind="stable")


def _block_size(queries: Matrix, memory: int) -> int:
    """Documents a block: their vectors, the scores and the comparison must fit the budget."""
    a_document = 4 * queries.shape[1] + 5 * len(queries)
    return int(np.clip(memory // max(1, a_document), _SMALLEST_BLOCK, _LARGEST_BLOCK))
