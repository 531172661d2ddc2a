"""ColBERT-style retrieval through sentence-transformers, on the same store as dense vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.checkpoint import locate
from r2med.retrieve.dense.encoding import Encoded
from r2med.retrieve.dense.form import Form
from r2med.retrieve.dense.library import LibraryEncoder, LibraryModel
from r2med.retrieve.dense.topk import Matrix
from r2med.retrieve.late.maxsim import Tokens, top_by_maxsim
from r2med.retrieve.ragged import RaggedRetriever, RaggedSearcher


def build(fields: Mapping[str, object], conditions: Conditions) -> RaggedRetriever:
    """A late-interaction retriever as its entry describes it; nothing is loaded yet."""
    checkpoint = str(fields["checkpoint"])

    def make() -> tuple[LibraryEncoder, LibraryEncoder]:
        located = locate(checkpoint, revision=str(fields["revision"]))
        model = LibraryModel(located, "MultiVectorEncoder", str(fields["dtype"]), conditions)
        return (
            LibraryEncoder(model, lambda *told: _packed(*told, side="query"), side="query"),
            LibraryEncoder(model, lambda *told: _packed(*told, side="document"), side="document"),
        )

    return RaggedRetriever("late", checkpoint, make, LateIndex, conditions)


class LateIndex(RaggedSearcher):
    """Documents as lists of token vectors."""

    def scores(self, queries: Encoded, depth: int) -> tuple[NDArray[np.int64], Matrix]:
        """Sums over the query's tokens of the best product with any of the document's."""
        asked = _unpacked(queries, 0, None)
        count = len(self.documents.places)
        best, found = top_by_maxsim(
            asked,
            lambda start, stop: _unpacked(self.documents, start, stop),
            count,
            depth=depth,
            memory=self.retriever.conditions.memory,
        )
        return best[queries.distinct], found[queries.distinct]


def _packed(model: Any, texts: list[str], form: Form, *, side: str) -> NDArray[np.float32]:
    """Rows of (how many vectors, their width, the vectors), padded to the batch's longest."""
    encode = model.encode_query if side == "query" else model.encode_document
    found = encode(texts, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True)
    width = found[0].shape[1]
    most = max(1, max(len(vectors) for vectors in found))
    packed = np.zeros((len(texts), 2 + most * width), dtype=np.float32)
    for row, vectors in zip(packed, found, strict=True):
        row[0], row[1] = len(vectors), width
        row[2 : 2 + vectors.size] = vectors.ravel()
    return packed


def _unpacked(encoded: Encoded, start: int, stop: int | None) -> Tokens:
    """The token vectors of a range of texts, one after the other."""
    lengths, parts = [0], []
    for row in encoded.shelf.rows(encoded.places[start:stop]):
        count, width = int(row[0]), int(row[1])
        lengths.append(count)
        parts.append(row[2 : 2 + count * width].reshape(count, width))
    vectors = np.concatenate(parts) if parts else np.zeros((0, 1), dtype=np.float32)
    return Tokens(vectors, np.cumsum(lengths))
