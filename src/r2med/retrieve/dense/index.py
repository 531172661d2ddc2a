"""The documents' vectors made ready for searching: whole, shortened or compressed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from r2med.errors import UsageError
from r2med.retrieve.dense.encoding import Encoded
from r2med.retrieve.dense.topk import Matrix, Source, top
from r2med.retrieve.dense.vectors import unit

_ROWS = 8192


@dataclass(frozen=True)
class Search:
    """How vectors are compared."""

    similarity: Literal["cosine", "dot"] = "cosine"
    dimensions: int = 0
    compress: Literal["none", "int8", "binary"] = "none"
    rescore: int = 4

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
        plain = small and search.compress == "none"
        return cls(encoded, search, memory, search.ready(encoded.matrix()) if plain else None)

    def search(self, queries: Matrix, *, depth: int) -> tuple[NDArray[np.int64], Matrix]:
        """The best documents of every query, ties in corpus order; absent ones are -2."""
        ready = self._search.ready(queries)
        if self._search.compress == "none":
            texts, scores = top(ready, self._rows, self._count, depth=depth, memory=self._memory)
        else:
            texts, scores = self._rescored(ready, depth)
        return spread_over(self._encoded.distinct, texts, scores, depth)

    def _rows(self, start: int, stop: int) -> Matrix:
        if self._kept is not None:
            return self._kept[start:stop]
        return self._search.ready(self._encoded.matrix(start, stop))

    def _rescored(self, queries: Matrix, depth: int) -> tuple[NDArray[np.int64], Matrix]:
        """Candidates by compressed vectors, then their float scores in order."""
        coarse, source = _compressed(self._search.compress, self._rows, self._count, queries)
        texts, _ = top(
            coarse, source, self._count, depth=depth * self._search.rescore, memory=self._memory
        )
        scores = np.empty(texts.shape, dtype=np.float32)
        for row, candidates in enumerate(texts):
            vectors = self._search.ready(
                self._encoded.shelf.gather(self._encoded.places[candidates])
            )
            scores[row] = vectors @ queries[row]
        order = np.lexsort((texts, -scores), axis=1)[:, :depth]
        return np.take_along_axis(texts, order, 1), np.take_along_axis(scores, order, 1)


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


def _compressed(how: str, rows: Source, count: int, queries: Matrix) -> tuple[Matrix, Source]:
    """Queries and documents in a coarse form whose dot product orders the candidates."""
    blocks = [rows(start, min(start + _ROWS, count)) for start in range(0, count, _ROWS)]
    if how == "binary":
        packed = np.concatenate([np.packbits(block > 0, axis=1) for block in blocks])
        width = queries.shape[1]

        def signs(start: int, stop: int) -> Matrix:
            bits = np.unpackbits(packed[start:stop], axis=1, count=width)
            return bits.astype(np.float32) * 2 - 1

        return queries, signs
    scale = np.max([np.abs(block).max(axis=0) for block in blocks], axis=0) / 127
    scale = np.where(scale > 0, scale, 1).astype(np.float32)
    small = np.concatenate([np.rint(block / scale).astype(np.int8) for block in blocks])
    return queries * scale, lambda start, stop: small[start:stop].astype(np.float32)
