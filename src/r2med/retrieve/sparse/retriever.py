"""SPLADE-style retrieval through sentence-transformers, on the same store as dense vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.checkpoint import locate
from r2med.retrieve.dense.encoding import Encoded
from r2med.retrieve.dense.form import Form
from r2med.retrieve.dense.library import LibraryEncoder, LibraryModel
from r2med.retrieve.dense.topk import Matrix, top_scored
from r2med.retrieve.ragged import RaggedRetriever, RaggedSearcher

_QUERIES, _DOCUMENTS = 256, 8192


def build(fields: Mapping[str, object], conditions: Conditions) -> RaggedRetriever:
    """A sparse retriever as its entry describes it; nothing is loaded yet."""
    checkpoint = str(fields["checkpoint"])

    def make() -> tuple[LibraryEncoder, LibraryEncoder]:
        model = LibraryModel(
            locate(checkpoint, revision=str(fields["revision"])),
            "SparseEncoder",
            str(fields["dtype"]),
            conditions,
            max_length=int(str(fields["max_length"])),
        )
        return (
            LibraryEncoder(model, lambda *told: _packed(*told, side="query"), side="query"),
            LibraryEncoder(model, lambda *told: _packed(*told, side="document"), side="document"),
        )

    return RaggedRetriever("sparse", checkpoint, make, SparseIndex, conditions)


class SparseIndex(RaggedSearcher):
    """Documents as rows of a sparse matrix."""

    def scores(self, queries: Encoded, depth: int) -> tuple[NDArray[np.int64], Matrix]:
        """Dot products over shared words, best first."""
        asked = unpacked(queries)[queries.distinct]
        held = unpacked(self.documents)
        width = max(asked.shape[1], held.shape[1])
        asked.resize(asked.shape[0], width)
        held.resize(held.shape[0], width)
        words = held.T.tocsr()
        parts = [asked[start : start + _QUERIES] for start in range(0, asked.shape[0], _QUERIES)]
        found = [_top(part, words, depth) for part in parts]
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])


def _top(
    queries: sp.csr_matrix, words: sp.csr_matrix, depth: int
) -> tuple[NDArray[np.int64], Matrix]:
    scores = (queries @ words).toarray()
    return top_scored(
        lambda start, stop: scores[:, start:stop], scores.shape, depth=depth, block=_DOCUMENTS
    )


def _packed(model: Any, texts: list[str], form: Form, *, side: str) -> NDArray[np.float32]:
    """Rows of (how many words, their numbers, their weights), padded to the batch's longest."""
    encode = model.encode_query if side == "query" else model.encode_document
    told = {"batch_size": len(texts), "show_progress_bar": False, "save_to_cpu": True}
    dense = encode(texts, convert_to_tensor=True, convert_to_sparse_tensor=False, **told)
    rows = sp.csr_matrix(dense.float().numpy())
    counts = np.diff(rows.indptr)
    most = max(1, int(counts.max()))
    packed = np.zeros((len(texts), 1 + 2 * most), dtype=np.float32)
    packed[:, 0] = counts
    inside = np.arange(most) < counts[:, None]
    packed[:, 1 : 1 + most][inside] = rows.indices
    packed[:, 1 + most :][inside] = rows.data
    return packed


def unpacked(encoded: Encoded) -> sp.csr_matrix:
    """The stored rows as one sparse matrix."""
    lengths, words, weights = [0], [np.zeros(0, dtype=np.float32)], [np.zeros(0, dtype=np.float32)]
    for row in encoded.shelf.rows(encoded.places):
        count, most = int(row[0]), (len(row) - 1) // 2
        lengths.append(count)
        words.append(row[1 : 1 + count])
        weights.append(row[1 + most : 1 + most + count])
    indices = np.concatenate(words).astype(np.int32)
    width = int(indices.max()) + 1 if len(indices) else 1
    shape = (len(lengths) - 1, width)
    return sp.csr_matrix((np.concatenate(weights), indices, np.cumsum(lengths)), shape=shape)
