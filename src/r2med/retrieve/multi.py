"""Several numbers per text that are no single vector: SPLADE's words and ColBERT's token vectors.

Sentence-transformers encodes both; `bge_m3` runs the heads that only that model has. A text is one
row of the vector store that says its own length; the two engines differ in how they pack such rows
and how they compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from r2med.models.checkpoint import locate
from r2med.models.vectors import open_shelf
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.embed import SIDES, Encoded, Encoder, Form, Side, Work, encode
from r2med.retrieve.dense.foreign import LibraryEncoder, LibraryModel
from r2med.retrieve.dense.retriever import costs
from r2med.retrieve.dense.settings import Precision
from r2med.retrieve.topk import Matrix, run_of, spread_over, top_scored
from r2med.runs import Run
from r2med.settings import setting
from r2med.tasks.task import Queries, Task

Head = Literal["model", "bge-m3"]
Ranked = tuple[NDArray[np.int64], Matrix]
"""For every query the best distinct texts and their scores, best first."""

_SPARSE_QUERIES, _SPARSE_DOCUMENTS = 256, 8192
_DOCUMENT_TOKENS = 256
"""Tokens of a full document, to plan blocks by."""


@dataclass(frozen=True)
class SparseSettings:
    """All that an entry of the sparse engine may say; multi.toml documents each field."""

    dtype: Precision
    head: Head
    checkpoint: str = setting(identity="content")
    revision: str = setting(identity="content")
    max_length: int = setting(least=0)


@dataclass(frozen=True)
class LateSettings:
    """All that an entry of the late-interaction engine may say."""

    dtype: Precision
    head: Head
    checkpoint: str = setting(identity="content")
    revision: str = setting(identity="content")
    query_max_length: int = setting(least=0)
    document_max_length: int = setting(least=0)


def build(settings: SparseSettings | LateSettings, conditions: Conditions) -> MultiRetriever:
    """A retriever as its entry describes it; nothing is loaded yet."""
    if isinstance(settings, SparseSettings):
        return MultiRetriever(
            settings, "SparseEncoder", settings.max_length, _pack_words, _best_by_words, conditions
        )
    return MultiRetriever(
        settings, "MultiVectorEncoder", 0, _pack_tokens, _best_by_tokens, conditions
    )


@dataclass(frozen=True)
class MultiRetriever:
    """A model of sentence-transformers, and how its rows are packed and compared."""

    settings: SparseSettings | LateSettings
    library_class: str
    max_length: int
    pack: Callable[[Any, list[str], Side], Matrix]
    """Encode texts of one side with the model, a row for each."""
    best: Callable[[Encoded, Encoded, int, int], Ranked]
    """Rank documents for queries, to a depth, within so many bytes."""
    conditions: Conditions

    @cached_property
    def encoders(self) -> Mapping[Side, Encoder]:
        """By side: the model may put queries and documents differently."""
        settings = self.settings
        located = locate(settings.checkpoint, revision=settings.revision)
        if settings.head == "bge-m3":
            from r2med.retrieve.bge_m3 import TokenVectors, TokenWeights

            kind = TokenWeights if isinstance(settings, SparseSettings) else TokenVectors
            return dict.fromkeys(SIDES, kind(located, settings.dtype, self.conditions))
        model = LibraryModel(
            located, self.library_class, settings.dtype, self.conditions, self.max_length
        )
        return {side: self._library_encoder(model, side) for side in SIDES}

    def _library_encoder(self, model: LibraryModel, side: Side) -> Encoder:
        tokens = self.length(side) if isinstance(self.settings, LateSettings) else 0

        def run(loaded: Any, texts: list[str], form: Form) -> Matrix:
            if tokens:
                _limit(loaded[0], side, tokens)
            return self.pack(loaded, texts, side)

        besides = {"tokens": tokens} if tokens else {}
        return LibraryEncoder(model, run, side=side, **besides)

    def length(self, side: Side) -> int:
        """Tokens of a text of one side; 0 leaves it to the model."""
        if isinstance(self.settings, SparseSettings):
            return self.settings.max_length
        query = side == "query"
        return self.settings.query_max_length if query else self.settings.document_max_length

    @property
    def identity(self) -> Mapping[str, object]:
        """Both encoders, by what the checkpoint's files hold."""
        return {side: dict(self.encoders[side].identity or {}) for side in SIDES}

    def prepare(self, task: Task) -> MultiSearcher:
        """Encode the last row of every document id, or take it from the store."""
        corpus = task.corpus
        texts = corpus.texts.take(pa.array(corpus.last_rows)).fill_null("").to_pylist()
        return MultiSearcher(self, task, self.encode(texts, "document"))

    def encode(self, texts: list[str], side: Side) -> Encoded:
        """The rows of some texts."""
        encoder = self.encoders[side]
        form = Form(max_length=self.length(side)) if self.settings.head == "bge-m3" else Form()
        work = Work(encoder, form, side, texts, lambda row: f"{side} {row + 1}", ragged=True)
        shelf = open_shelf(
            "embeddings",
            encoder.identity,
            label=self.settings.checkpoint,
            tell=self.conditions.tell,
        )
        return encode(work, shelf, self.conditions)


class MultiSearcher:
    """A task's documents as stored rows."""

    def __init__(self, retriever: MultiRetriever, task: Task, documents: Encoded) -> None:
        self._retriever = retriever
        self._task = task
        self._documents = documents
        self._facts: dict[str, object] = {"documents": documents.facts}

    def search(self, queries: Queries, *, depth: int) -> Run:
        """The best documents; one whose id is the query's own is left out."""
        encoded = self._retriever.encode(queries.texts.fill_null("").to_pylist(), "query")
        self._facts["queries"] = encoded.facts
        memory = self._retriever.conditions.memory
        texts, scores = self._retriever.best(encoded, self._documents, depth + 1, memory)
        documents, spread = spread_over(self._documents.distinct, texts, scores, depth + 1)
        return run_of(queries.ids, self._task, documents, spread, depth)

    def facts(self) -> Mapping[str, object]:
        """Both sides' counts and first texts as the model saw them, and what ran."""
        encoder = self._retriever.encoders["document"]
        return {"encoder": dict(encoder.facts()), **self._facts, **costs(self._facts)}


def _pack_words(model: Any, texts: list[str], side: Side) -> Matrix:
    encode_side = model.encode_query if side == "query" else model.encode_document
    options = {"batch_size": len(texts), "show_progress_bar": False, "save_to_cpu": True}
    dense = encode_side(texts, convert_to_tensor=True, convert_to_sparse_tensor=False, **options)
    return packed_words(sp.csr_matrix(dense.float().numpy()))


def packed_words(rows: sp.csr_matrix) -> Matrix:
    """Rows of (how many words, their numbers, their weights), padded to the batch's longest."""
    counts = np.diff(rows.indptr)
    most = max(1, int(counts.max()))
    packed = np.zeros((rows.shape[0], 1 + 2 * most), dtype=np.float32)
    packed[:, 0] = counts
    inside = np.arange(most) < counts[:, None]
    packed[:, 1 : 1 + most][inside] = rows.indices
    packed[:, 1 + most :][inside] = rows.data
    return packed


def _unpacked_words(encoded: Encoded) -> sp.csr_matrix:
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


def _best_by_words(queries: Encoded, documents: Encoded, depth: int, memory: int) -> Ranked:
    """By dot products over shared words."""
    asked, held = _unpacked_words(queries)[queries.distinct], _unpacked_words(documents)
    width = max(asked.shape[1], held.shape[1])
    asked.resize(asked.shape[0], width)
    held.resize(held.shape[0], width)
    words = held.T.tocsr()
    ranked = []
    for start in range(0, asked.shape[0], _SPARSE_QUERIES):
        scores = (asked[start : start + _SPARSE_QUERIES] @ words).toarray()
        block = _SPARSE_DOCUMENTS
        ranked.append(top_scored(_columns(scores), scores.shape, depth=depth, block=block))
    return np.concatenate([texts for texts, _ in ranked]), np.concatenate([s for _, s in ranked])


def _columns(scores: Matrix) -> Callable[[int, int], Matrix]:
    return lambda start, stop: scores[:, start:stop]


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token vectors of several texts, one after the other; text i owns offsets[i]:offsets[i+1]."""

    vectors: Matrix
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1


def _limit(transformer: Any, side: Side, tokens: int) -> None:
    """Set the tokens of one side; queries that are filled up are filled up to that many."""
    if side == "document":
        transformer.document_length = tokens
    elif transformer.query_expansion is None:
        transformer.query_length = tokens
    else:
        transformer.query_expansion = {**transformer.query_expansion, "length": tokens}


def _pack_tokens(model: Any, texts: list[str], side: Side) -> Matrix:
    encode_side = model.encode_query if side == "query" else model.encode_document
    return packed_tokens(
        encode_side(texts, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True)
    )


def packed_tokens(matrices: Sequence[Matrix]) -> Matrix:
    """Rows of (how many vectors, their width, the vectors), padded to the batch's longest."""
    width = matrices[0].shape[1]
    most = max(1, max(len(vectors) for vectors in matrices))
    packed = np.zeros((len(matrices), 2 + most * width), dtype=np.float32)
    for row, vectors in zip(packed, matrices, strict=True):
        row[0], row[1] = len(vectors), width
        row[2 : 2 + vectors.size] = vectors.ravel()
    return packed


def _unpacked_tokens(encoded: Encoded, start: int = 0, stop: int | None = None) -> Tokens:
    """The token vectors of a range of texts, one after the other."""
    lengths, parts = [0], []
    for row in encoded.shelf.rows(encoded.places[start:stop]):
        count, width = int(row[0]), int(row[1])
        lengths.append(count)
        parts.append(row[2 : 2 + count * width].reshape(count, width))
    vectors = np.concatenate(parts) if parts else np.zeros((0, 1), dtype=np.float32)
    return Tokens(vectors, np.cumsum(lengths))


def _best_by_tokens(queries: Encoded, documents: Encoded, depth: int, memory: int) -> Ranked:
    """By MaxSim: sums over the query's tokens of the best product with any of the document's."""
    asked = _unpacked_tokens(queries)
    texts, scores = top_scored(
        lambda start, stop: maxsim(asked, _unpacked_tokens(documents, start, stop)),
        (len(asked), len(documents.places)),
        depth=depth,
        block=max(16, memory // (_DOCUMENT_TOKENS * 4 * max(1, len(asked.vectors)))),
    )
    return texts[queries.distinct], scores[queries.distinct]


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
