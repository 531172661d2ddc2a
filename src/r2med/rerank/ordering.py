"""Put a reranked part in order and keep the first stage's order below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from r2med.rerank.interface import ListScores
from r2med.runs import Run
from r2med.runs.ordering import name_places

Tail = Literal["keep", "drop"]
_LOWEST = float(np.finfo(np.float32).min)


def reordered(first: Run, scores: Sequence[ListScores], reranked: int, tail: Tail) -> Run:
    """The first `reranked` documents of each list by score, ties as in trec_eval.

    `keep` leaves the rest in its order with scores below the lowest reranked one, so that
    every tool that sorts by score sees the same list; `drop` leaves it out.
    """
    head = first.truncated(reranked)
    flat = np.concatenate(scores) if len(head.documents) else np.zeros(0, dtype=np.float32)
    order = np.lexsort((-name_places(head), -flat, head.query_rows))
    top = Run(
        query_ids=head.query_ids,
        document_ids=head.document_ids,
        offsets=head.offsets,
        documents=head.documents[order],
        scores=flat[order].astype(np.float64),
    )
    return top if tail == "drop" else _with_tail(top, first)


def _with_tail(top: Run, first: Run) -> Run:
    documents = first.documents.copy()
    scores = np.empty(len(documents), dtype=np.float64)
    heads = first.ranks <= np.repeat(top.lengths, first.lengths)
    documents[heads] = top.documents
    scores[heads] = top.scores
    for row in np.flatnonzero(first.lengths > top.lengths):
        start, end = first.offsets[row], first.offsets[row + 1]
        reranked = top.scores[top.offsets[row] : top.offsets[row + 1]]
        scores[start:end] = _extended(reranked, int(end - start))
    return Run(first.query_ids, first.document_ids, first.offsets, documents, scores)


def _extended(scores: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Falling scores followed by lower ones, `count` in all, that float32 tells apart.

    Where the lowest score leaves no such numbers below it, all become ranks, counted from the end.
    """
    lowest = float(scores[-1])
    steps = np.arange(count - len(scores) + 1, dtype=np.float64)
    step = 1.0
    while lowest - step * steps[-1] >= _LOWEST:
        below = lowest - step * steps
        if (np.diff(below.astype(np.float32)) < 0).all():
            return np.concatenate([scores, below[1:]])
        step *= 2
    return np.arange(count, 0, -1, dtype=np.float64)
