"""The documents' vectors made ready for searching: whole or shortened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from r2med.errors import UsageError
from r2med.retrieve.dense.encoding import Encoded
from r2med.retrieve.dense.topk import Matrix, top
from r2med.retrieve.dense.vectors import unit


@dataclass(frozen=True)
class Search:
    """How vectors are compared."""

    similarity: Literal["cosine", "dot"] = "cosine"
    dimensions: int = 0

    def ready(self, vectors: Matrix) -> Matrix:
        """Vectors whose dot product is the score."""
        shortened = vectors[:, : self.dimensions] if self.dimensions else vectors
        return unit(shortened) if self.similarity == "cosine" else shortened


class Index:
    """Distinct texts are searched once, so equal texts score equally to the last bit."""

    def __init__(self, encoded: Encoded, search: Search, memory: int, kept: Matrix | None) -> None:
        self._encoded = encoded
        self._search = search
        self._memory = memory
        self._kept = kept
        self._count = len(encoded.places)
        self.width = encoded.width

    @classmethod
    def build(cls, encoded: Encoded, search: Search, memory: int) -> Index:
        """Keep the vectors in memory where they fit the budget; else read them when needed."""
        width = encoded.width
        if width and search.dimensions > width:
            raise UsageError(
                f"dimensions={search.dimensions}: the encoder's vectors have {width} numbers, of "
                f"which the first are kept. Give {width} or less, or 0 for all."
            )
        small = len(encoded.places) * width * 4 <= memory
        return cls(encoded, search, memory, search.ready(encoded.matrix()) if small else None)

    def search(self, queries: Matrix, *, depth: int) -> tuple[NDArray[np.int64], Matrix]:
        """The best documents of every query, ties in corpus order; absent ones are -2."""
        ready = self._search.ready(queries)
        texts, scores = top(ready, self._rows, self._count, depth=depth, memory=self._memory)
        return spread_over(self._encoded.distinct, texts, scores, depth)

    def _rows(self, start: int, stop: int) -> Matrix:
        if self._kept is not None:
            return self._kept[start:stop]
        return self._search.ready(self._encoded.matrix(start, stop))


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
    for row, (found, scored) in enumerate(zip(texts, scores, strict=True)):
        owned = [order[starts[text] : starts[text + 1]] for text in found]
        counts = starts[found + 1] - starts[found]
        placed, valued = _in_order(np.concatenate(owned), np.repeat(scored, counts))
        kept = min(len(placed), documents.shape[1])
        documents[row, :kept], spread[row, :kept] = placed[:kept], valued[:kept]
    return documents, spread


def _in_order(documents: NDArray[np.int64], scores: Matrix) -> tuple[NDArray[np.int64], Matrix]:
    order = np.lexsort((documents, -scores))
    return documents[order], scores[order]
