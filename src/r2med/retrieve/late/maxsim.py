"""Exact MaxSim: each query token takes its best document token, and the document their sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.dense.topk import Matrix, top_scored


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token vectors of several texts, one after the other; text i owns offsets[i]:offsets[i+1]."""

    vectors: Matrix
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1


def maxsim(queries: Tokens, documents: Tokens) -> Matrix:
    """All scores, (queries, documents); a text without tokens scores 0 with everything."""
    scores = np.zeros((len(queries), len(documents)), dtype=np.float32)
    held = np.flatnonzero(np.diff(documents.offsets))
    asked = np.flatnonzero(np.diff(queries.offsets))
    if not (len(held) and len(asked)):
        return scores
    products = documents.vectors @ queries.vectors.T
    best = np.maximum.reduceat(products, documents.offsets[held], axis=0)
    sums = np.add.reduceat(best, queries.offsets[asked], axis=1)
    scores[np.ix_(asked, held)] = sums.T
    return scores


def top_by_maxsim(
    queries: Tokens,
    documents: Callable[[int, int], Tokens],
    count: int,
    *,
    depth: int,
    memory: int,
) -> tuple[NDArray[np.int64], Matrix]:
    """The `depth` best documents of every query, ties to the earlier one."""
    return top_scored(
        lambda start, stop: maxsim(queries, documents(start, stop)),
        (len(queries), count),
        depth=depth,
        block=_block_size(queries, memory),
    )


def _block_size(queries: Tokens, memory: int) -> int:
    """Documents a block, taking 256 tokens for each as a full one."""
    return max(16, memory // (256 * 4 * max(1, len(queries.vectors))))
