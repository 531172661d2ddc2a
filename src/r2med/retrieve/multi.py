"""Several numbers per text that are no single vector: SPLADE's words and ColBERT's token vectors.

Sentence-transformers encodes both. The two further heads of bge-m3, which no library at hand runs,
are linear layers on its hidden states, computed as its authors' FlagEmbedding does. A text is one
row of the vector store that says its own length; the two backends differ in how they pack such rows
and how they compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from r2med.algorithms import versions
from r2med.execution.resources import Resources
from r2med.execution.usage import Usage
from r2med.models.batching import Features, Rows, TokenInputs
from r2med.models.checkpoint import locate
from r2med.models.encoding import SIDES, Encoded, Encoder, Form, Inputs, Side
from r2med.retrieve.dense.library_encoders import LibraryEncoder, LibraryModel
from r2med.retrieve.dense.retriever import EncoderRetriever, Precision
from r2med.retrieve.dense.transformer import Steps, TransformerEncoder, load_linear
from r2med.retrieve.interface import QueryForm, SearchOutput
from r2med.retrieve.topk import Matrix, Score, run_of, spread_over, top_scored
from r2med.runs import Run
from r2med.runs.run import offsets_of
from r2med.settings import setting
from r2med.tasks.task import Queries, Task

_DOCUMENT_TOKENS = 256
"""Tokens of a full document, to plan blocks by."""


@dataclass(frozen=True, kw_only=True)
class _Settings:
    dtype: Precision
    head: Literal["model", "bge-m3"]
    checkpoint: str = setting(identity="content")
    revision: str = setting(identity="content")


@dataclass(frozen=True, kw_only=True)
class SparseSettings(_Settings):
    """All that an entry of the sparse backend may say; multi.toml documents each field."""

    max_length: int = setting(least=0)


@dataclass(frozen=True, kw_only=True)
class LateSettings(_Settings):
    """All that an entry of the late-interaction backend may say."""

    query_max_length: int = setting(least=0)
    document_max_length: int = setting(least=0)


def build(settings: SparseSettings | LateSettings, resources: Resources) -> MultiRetriever:
    """A retriever as its entry describes it; nothing is loaded yet."""
    sparse, heads = isinstance(settings, SparseSettings), settings.head == "bge-m3"
    if isinstance(settings, SparseSettings):
        lengths = dict.fromkeys(SIDES, settings.max_length)
    else:
        lengths = {"query": settings.query_max_length, "document": settings.document_max_length}

    def encoders() -> tuple[Encoder, Encoder]:
        located = locate(settings.checkpoint, revision=settings.revision)
        if heads:
            kind = TokenWeights if sparse else TokenVectors
            head = kind(located, settings.dtype, resources.options, Steps("cls"))
            return head, head
        name, limit = (
            ("SparseEncoder", lengths["document"]) if sparse else ("MultiVectorEncoder", 0)
        )
        model = LibraryModel(located, settings.dtype, resources.options, name, limit)
        query, document = (_encoder(model, side, 0 if sparse else lengths[side]) for side in SIDES)
        return query, document

    return MultiRetriever(
        name=settings.checkpoint,
        make=encoders,
        form=lambda task, side: Form(max_length=lengths[side] if heads else 0),
        resources=resources,
        ragged=True,
        compare=_by_words if sparse else _by_tokens,
        algorithm="sparse-search" if sparse else "late-interaction",
    )


@dataclass(frozen=True, kw_only=True)
class MultiRetriever(EncoderRetriever):
    """A model and how its rows are compared."""

    compare: Callable[[Encoded, Encoded], tuple[Score, int]]
    """From rows of queries and documents to scores, and the numbers that one document takes."""
    algorithm: Literal["sparse-search", "late-interaction"]

    @property
    def identity(self) -> Mapping[str, object]:
        """Both encoders, by what the checkpoint's files hold."""
        query, document = (dict(self.encoders[side].identity or {}) for side in SIDES)
        return {
            "query": query,
            "document": document,
            "algorithms": versions(self.algorithm),
        }

    def prepare(self, task: Task) -> MultiSearcher:
        """Encode the last row of every document id, or take it from the store."""
        return MultiSearcher(self, task, self.encode_documents(task))


@dataclass(eq=False)
class MultiSearcher:
    """A task's documents as stored rows."""

    retriever: MultiRetriever
    task: Task
    documents: Encoded

    @property
    def usage(self) -> Usage:
        """What encoding the documents used."""
        return self.documents.usage

    def search(self, queries: Queries, *, depth: int) -> Run:
        """Return the best documents of every query."""
        return self.search_queries(queries, depth=depth).run

    def search_forms(self, forms: Sequence[QueryForm], *, depth: int) -> SearchOutput:
        """Search with the lexical text of each query: token vectors have no mean."""
        queries = Queries.of([form.query_id for form in forms], [form.lexical for form in forms])
        return self.search_queries(queries, depth=depth)

    def search_queries(self, queries: Queries, *, depth: int) -> SearchOutput:
        """Return the best documents with facts and usage."""
        asked = queries.texts.fill_null("").to_pylist()
        encoded = self.retriever.encode(self.task, "query", asked)
        score, numbers = self.retriever.compare(encoded, self.documents)
        texts, scores = top_scored(
            score,
            (len(encoded.indexes), len(self.documents.indexes)),
            depth=depth + 1,
            block=max(16, self.retriever.resources.options.memory // (4 * max(1, numbers))),
        )
        texts, scores = texts[encoded.distinct], scores[encoded.distinct]
        documents, spread = spread_over(self.documents.distinct, texts, scores, depth + 1)
        run = run_of(queries.ids, self.task, documents, spread, depth)
        return SearchOutput(run, {"queries": encoded.facts}, encoded.usage)

    def facts(self) -> Mapping[str, object]:
        """Return counts of the documents, the first one as the model saw it, and what ran."""
        encoder = dict(self.retriever.encoders["document"].facts())
        return {"encoder": encoder, "documents": self.documents.facts}


def _encoder(model: LibraryModel, side: Side, tokens: int) -> LibraryEncoder:
    """Encodes texts of one side as words with weights, or as vectors of tokens.

    `tokens` are those of a text in late interaction; 0 leaves their number to the model.
    """

    def run(loaded: Any, texts: list[str], form: Form) -> Matrix:
        encode = getattr(loaded, f"encode_{side}")
        options: dict[str, Any] = {"batch_size": len(texts), "show_progress_bar": False}
        if model.kind == "SparseEncoder":
            options |= {"save_to_cpu": True, "convert_to_tensor": True}
            dense = encode(texts, convert_to_sparse_tensor=False, **options)
            return packed_words(sp.csr_matrix(dense.float().numpy()))
        transformer = loaded[0]
        if tokens and side == "document":
            transformer.document_length = tokens
        elif tokens and transformer.query_expansion is None:
            transformer.query_length = tokens
        elif tokens:  # Queries are filled up to this many.
            transformer.query_expansion = {**transformer.query_expansion, "length": tokens}
        return packed_tokens(encode(texts, convert_to_numpy=True, **options))

    return LibraryEncoder(model, run, {"side": side} | ({"tokens": tokens} if tokens else {}))


class _HeadEncoder(TransformerEncoder):
    """The hidden states of bge-m3, read by a linear layer in a file of the checkpoint."""

    layer: ClassVar[str]

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The checkpoint's content, which head reads it, and the arithmetic."""
        return {**super().identity, "head": self.layer}

    @cached_property
    def _linear(self) -> Any:
        return load_linear(self.checkpoint.folder / self.layer).to(self.model.device)

    def _read(self, inputs: Inputs, rows: Rows) -> tuple[Matrix, Features]:
        """What the layer makes of each token, and the tokens."""
        import torch

        assert isinstance(inputs, TokenInputs)
        features = inputs.features(rows)
        with torch.inference_mode():
            read: Matrix = self._linear(self.hidden(features)).cpu().numpy()
        return read, features


class TokenWeights(_HeadEncoder):
    """Sparse vectors over the vocabulary: a token weighs as much as its heaviest occurrence."""

    layer = "sparse_linear.pt"

    def encode(self, inputs: Inputs, rows: Rows) -> Matrix:
        """Words and weights of a batch, in order of appearance; special tokens weigh nothing."""
        read, features = self._read(inputs, rows)
        ids, weights = features["input_ids"], read[:, :, 0]
        special = np.isin(ids, self.tokenizer.all_special_ids)
        texts, places = np.nonzero((features["attention_mask"] > 0) & (weights > 0) & ~special)
        width = len(self.tokenizer)
        pairs, first, owners = np.unique(
            texts * width + ids[texts, places], return_index=True, return_inverse=True
        )
        heaviest = np.zeros(len(pairs), dtype=np.float32)
        np.maximum.at(heaviest, owners, weights[texts, places])
        order = np.argsort(first)
        offsets = offsets_of(np.bincount(pairs // width, minlength=len(ids)))
        columns = (heaviest[order], pairs[order] % width, offsets)
        return packed_words(sp.csr_matrix(columns, shape=(len(ids), width)))


class TokenVectors(_HeadEncoder):
    """One vector of length 1 per token after the first."""

    layer = "colbert_linear.pt"

    def encode(self, inputs: Inputs, rows: Rows) -> Matrix:
        """The vectors of a batch, the opening token's left out."""
        read, features = self._read(inputs, rows)
        norms = np.maximum(np.linalg.norm(read, axis=2, keepdims=True), 1e-12)
        lengths = features["attention_mask"].sum(axis=1)
        units = zip(read / norms, lengths, strict=True)
        return packed_tokens([vectors[1 : int(length)] for vectors, length in units])


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
    for row in encoded.cache.rows(encoded.indexes):
        count, most = int(row[0]), (len(row) - 1) // 2
        lengths.append(count)
        words.append(row[1 : 1 + count])
        weights.append(row[1 + most : 1 + most + count])
    indices = np.concatenate(words).astype(np.int32)
    width = int(indices.max()) + 1 if len(indices) else 1
    shape = (len(lengths) - 1, width)
    return sp.csr_matrix((np.concatenate(weights), indices, np.cumsum(lengths)), shape=shape)


def _by_words(queries: Encoded, documents: Encoded) -> tuple[Score, int]:
    """Dot products over shared words, and how many numbers those with one document are."""
    asked, held = _unpacked_words(queries), _unpacked_words(documents)
    width = max(asked.shape[1], held.shape[1])
    asked.resize(asked.shape[0], width)
    held.resize(held.shape[0], width)
    return lambda start, stop: (asked @ held[start:stop].T).toarray(), asked.shape[0]


class TokenRows(NamedTuple):
    """Token vectors of several texts, one after the other; text i owns offsets[i]:offsets[i+1]."""

    vectors: Matrix
    offsets: NDArray[np.int64]


def packed_tokens(matrices: Sequence[Matrix]) -> Matrix:
    """Rows of (how many vectors, their width, the vectors), padded to the batch's longest."""
    width = matrices[0].shape[1]
    most = max(1, max(len(vectors) for vectors in matrices))
    packed = np.zeros((len(matrices), 2 + most * width), dtype=np.float32)
    for row, vectors in zip(packed, matrices, strict=True):
        row[0], row[1] = len(vectors), width
        row[2 : 2 + vectors.size] = vectors.ravel()
    return packed


def _unpacked_tokens(encoded: Encoded, start: int = 0, stop: int | None = None) -> TokenRows:
    """The token vectors of a range of texts, one after the other."""
    lengths, parts = [0], []
    for row in encoded.cache.rows(encoded.indexes[start:stop]):
        count, width = int(row[0]), int(row[1])
        lengths.append(count)
        parts.append(row[2 : 2 + count * width].reshape(count, width))
    vectors = np.concatenate(parts) if parts else np.zeros((0, 1), dtype=np.float32)
    return TokenRows(vectors, np.cumsum(lengths))


def _by_tokens(queries: Encoded, documents: Encoded) -> tuple[Score, int]:
    """MaxSim: sums over the query's tokens of the best product with any of the document's."""
    asked = _unpacked_tokens(queries)
    return (
        lambda start, stop: maxsim(asked, _unpacked_tokens(documents, start, stop)),
        _DOCUMENT_TOKENS * len(asked.vectors),
    )


def maxsim(queries: TokenRows, documents: TokenRows) -> Matrix:
    """All scores, (queries, documents); a text without tokens scores 0 with everything."""
    shape = (len(queries.offsets) - 1, len(documents.offsets) - 1)
    scores = np.zeros(shape, dtype=np.float32)
    held = np.flatnonzero(np.diff(documents.offsets))
    asked = np.flatnonzero(np.diff(queries.offsets))
    if not (len(held) and len(asked)):
        return scores
    products = documents.vectors @ queries.vectors.T
    best = np.maximum.reduceat(products, documents.offsets[held], axis=0)
    sums = np.add.reduceat(best, queries.offsets[asked], axis=1)
    scores[np.ix_(asked, held)] = sums.T
    return scores
