"""Retrievers with more than one vector per text: sparse (SPLADE) and late interaction (ColBERT).

sentence-transformers encodes both. The sparse and multi-vector heads of bge-m3, which it does not
support, are linear layers on the hidden states, computed as in the authors' FlagEmbedding. In the
embedding cache, a text is one row that begins with its length; the two backends differ in how they
pack rows and how they compare them.
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

#: Assumed tokens per document when the size of blocks is chosen.
_DOCUMENT_TOKENS = 256


@dataclass(frozen=True, kw_only=True)
class _Settings:
    dtype: Precision
    head: Literal["model", "bge-m3"]
    checkpoint: str = setting(identity="content")
    revision: str = setting(identity="content")


@dataclass(frozen=True, kw_only=True)
class SparseSettings(_Settings):
    """The settings of an entry of the sparse backend; multi.toml documents each field."""

    max_length: int = setting(least=0)


@dataclass(frozen=True, kw_only=True)
class LateSettings(_Settings):
    """The settings of an entry of the late-interaction backend."""

    query_max_length: int = setting(least=0)
    document_max_length: int = setting(least=0)


def build(settings: SparseSettings | LateSettings, resources: Resources) -> MultiRetriever:
    """Return a retriever with these settings; the model is loaded on first use."""
    sparse, uses_head = isinstance(settings, SparseSettings), settings.head == "bge-m3"
    if isinstance(settings, SparseSettings):
        lengths = dict.fromkeys(SIDES, settings.max_length)
    else:
        lengths = {"query": settings.query_max_length, "document": settings.document_max_length}

    def make_encoders() -> tuple[Encoder, Encoder]:
        located = locate(settings.checkpoint, revision=settings.revision)
        if uses_head:
            head_class = TokenWeights if sparse else TokenVectors
            head = head_class(located, settings.dtype, resources.options, Steps("cls"))
            return head, head
        options = resources.options
        if sparse:
            limit = lengths["document"]
            model = LibraryModel(located, settings.dtype, options, "SparseEncoder", limit)
            return _library_encoder(model, "query", 0), _library_encoder(model, "document", 0)
        model = LibraryModel(located, settings.dtype, options, "MultiVectorEncoder")
        query, document = (_library_encoder(model, side, lengths[side]) for side in SIDES)
        return query, document

    return MultiRetriever(
        name=settings.checkpoint,
        make_encoders=make_encoders,
        form=lambda task, side: Form(max_length=lengths[side] if uses_head else 0),
        resources=resources,
        ragged=True,
        compare=_score_by_words if sparse else _score_by_tokens,
        algorithm="sparse-search" if sparse else "late-interaction",
    )


@dataclass(frozen=True, kw_only=True)
class MultiRetriever(EncoderRetriever):
    """A retriever with several vectors, or weighted words, per text."""

    compare: Callable[[Encoded, Encoded], tuple[Score, int]]
    """Function that returns a scoring function, and the floats that it needs per document."""
    algorithm: Literal["sparse-search", "late-interaction"]

    @property
    def identity(self) -> Mapping[str, object]:
        """Everything that decides rankings, except the settings.

        These are the content of the checkpoint, and the version of the search.
        """
        query, document = (dict(self.encoders[side].identity or {}) for side in SIDES)
        return {
            "query": query,
            "document": document,
            "algorithms": versions(self.algorithm),
        }

    def prepare(self, task: Task) -> MultiSearcher:
        """Encode the documents, or read their rows from the embedding cache."""
        return MultiSearcher(self, task, self.encode_documents(task))


@dataclass(eq=False)
class MultiSearcher:
    """The rows of a task's documents, ready to be searched."""

    retriever: MultiRetriever
    task: Task
    documents: Encoded

    @property
    def usage(self) -> Usage:
        """The usage of encoding the documents."""
        return self.documents.usage

    def search(self, queries: Queries, *, depth: int) -> Run:
        """Return the best documents of every query."""
        return self.search_queries(queries, depth=depth).run

    def search_forms(self, forms: Sequence[QueryForm], *, depth: int) -> SearchOutput:
        """Search with the lexical text of each query, because token vectors have no mean."""
        queries = Queries.of([form.query_id for form in forms], [form.lexical for form in forms])
        return self.search_queries(queries, depth=depth)

    def search_queries(self, queries: Queries, *, depth: int) -> SearchOutput:
        """Return the best documents of every query, with facts for the record and the usage."""
        query_texts = queries.texts.fill_null("").to_pylist()
        encoded = self.retriever.encode(self.task, "query", query_texts)
        score, floats_per_document = self.retriever.compare(encoded, self.documents)
        bytes_per_document = 4 * max(1, floats_per_document)
        texts, scores = top_scored(
            score,
            (len(encoded.indexes), len(self.documents.indexes)),
            depth=depth + 1,
            block=max(16, self.retriever.resources.options.memory // bytes_per_document),
        )
        texts, scores = texts[encoded.distinct], scores[encoded.distinct]
        documents, spread = spread_over(self.documents.distinct, texts, scores, depth + 1)
        run = run_of(queries.ids, self.task, documents, spread, depth)
        return SearchOutput(run, {"queries": encoded.facts}, encoded.usage)

    def facts(self) -> Mapping[str, object]:
        """Return facts for the record: encoder, document counts, the first document as encoded."""
        encoder = dict(self.retriever.encoders["document"].facts())
        return {"encoder": encoder, "documents": self.documents.facts}


def _library_encoder(model: LibraryModel, side: Side, tokens: int) -> LibraryEncoder:
    """Return an encoder that gives weighted words (sparse) or token vectors (late interaction).

    `tokens` is the limit of tokens per text in late interaction; 0 keeps the model's limit.
    """

    def run(loaded: Any, texts: list[str], form: Form) -> Matrix:
        encode = getattr(loaded, f"encode_{side}")
        options: dict[str, Any] = {"batch_size": len(texts), "show_progress_bar": False}
        if model.class_name == "SparseEncoder":
            options |= {"save_to_cpu": True, "convert_to_tensor": True}
            dense = encode(texts, convert_to_sparse_tensor=False, **options)
            return pack_words(sp.csr_matrix(dense.float().numpy()))
        transformer = loaded[0]
        if tokens and side == "document":
            transformer.document_length = tokens
        elif tokens and transformer.query_expansion is None:
            transformer.query_length = tokens
        elif tokens:  # queries are padded to this number of tokens
            transformer.query_expansion = {**transformer.query_expansion, "length": tokens}
        return pack_tokens(encode(texts, convert_to_numpy=True, **options))

    identity: dict[str, object] = {"side": side}
    if tokens:
        identity["tokens"] = tokens
    return LibraryEncoder(model, run, identity)


class _HeadEncoder(TransformerEncoder):
    """An encoder that applies a linear layer of bge-m3 to the hidden states of the transformer."""

    layer: ClassVar[str]

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """Everything that decides the vectors: the identity of the transformer, and the head."""
        return {**super().identity, "head": self.layer}

    @cached_property
    def _linear(self) -> Any:
        return load_linear(self.checkpoint.folder / self.layer).to(self.model.device)

    def _read(self, inputs: Inputs, rows: Rows) -> tuple[Matrix, Features]:
        """Return the output of the layer for each token, and the tokens."""
        import torch

        assert isinstance(inputs, TokenInputs)
        features = inputs.features(rows)
        with torch.inference_mode():
            outputs: Matrix = self._linear(self.hidden_states(features)).cpu().numpy()
        return outputs, features


class TokenWeights(_HeadEncoder):
    """Encoder to sparse vectors: the weight of a token is its highest weight in the text."""

    layer = "sparse_linear.pt"

    def encode(self, inputs: Inputs, rows: Rows) -> Matrix:
        """Return the tokens of each text with their weights, in order of appearance.

        Special tokens are left out.
        """
        outputs, features = self._read(inputs, rows)
        ids, weights = features["input_ids"], outputs[:, :, 0]
        is_special = np.isin(ids, self.tokenizer.all_special_ids)
        is_weighted = (features["attention_mask"] > 0) & (weights > 0) & ~is_special
        texts, positions = np.nonzero(is_weighted)
        width = len(self.tokenizer)
        # Text and token in one number, so that one call finds the distinct pairs.
        pairs, first, pair_indexes = np.unique(
            texts * width + ids[texts, positions], return_index=True, return_inverse=True
        )
        heaviest = np.zeros(len(pairs), dtype=np.float32)
        np.maximum.at(heaviest, pair_indexes, weights[texts, positions])
        order = np.argsort(first)
        offsets = offsets_of(np.bincount(pairs // width, minlength=len(ids)))
        columns = (heaviest[order], pairs[order] % width, offsets)
        return pack_words(sp.csr_matrix(columns, shape=(len(ids), width)))


class TokenVectors(_HeadEncoder):
    """Encoder to one vector per token, normalised; the first token of a text is left out."""

    layer = "colbert_linear.pt"

    def encode(self, inputs: Inputs, rows: Rows) -> Matrix:
        """Return the normalised vectors of all tokens except the first."""
        outputs, features = self._read(inputs, rows)
        norms = np.maximum(np.linalg.norm(outputs, axis=2, keepdims=True), 1e-12)
        lengths = features["attention_mask"].sum(axis=1)
        units = zip(outputs / norms, lengths, strict=True)
        return pack_tokens([vectors[1 : int(length)] for vectors, length in units])


def pack_words(rows: sp.csr_matrix) -> Matrix:
    """Return rows of (number of words, word ids, weights), padded to the longest in the batch."""
    counts = np.diff(rows.indptr)
    most = max(1, int(counts.max()))
    packed = np.zeros((rows.shape[0], 1 + 2 * most), dtype=np.float32)
    packed[:, 0] = counts
    inside = np.arange(most) < counts[:, None]
    packed[:, 1 : 1 + most][inside] = rows.indices
    packed[:, 1 + most :][inside] = rows.data
    return packed


def _unpack_words(encoded: Encoded) -> sp.csr_matrix:
    """Return the rows that `pack_words` made as one sparse matrix."""
    lengths = [0]
    words, weights = [np.zeros(0, dtype=np.float32)], [np.zeros(0, dtype=np.float32)]
    for row in encoded.cache.rows(encoded.indexes):
        count, most = int(row[0]), (len(row) - 1) // 2
        lengths.append(count)
        words.append(row[1 : 1 + count])
        weights.append(row[1 + most : 1 + most + count])
    indices = np.concatenate(words).astype(np.int32)
    width = int(indices.max()) + 1 if len(indices) else 1
    shape = (len(lengths) - 1, width)
    return sp.csr_matrix((np.concatenate(weights), indices, np.cumsum(lengths)), shape=shape)


def _score_by_words(queries: Encoded, documents: Encoded) -> tuple[Score, int]:
    """Return a function that scores by dot products, and how many floats it needs per document."""
    query_matrix, document_matrix = _unpack_words(queries), _unpack_words(documents)
    width = max(query_matrix.shape[1], document_matrix.shape[1])
    query_matrix.resize(query_matrix.shape[0], width)
    document_matrix.resize(document_matrix.shape[0], width)

    def score(start: int, stop: int) -> Matrix:
        scores: Matrix = (query_matrix @ document_matrix[start:stop].T).toarray()
        return scores

    return score, query_matrix.shape[0]


class TokenRows(NamedTuple):
    """Token vectors of several texts; text `i` has `vectors[offsets[i]:offsets[i + 1]]`."""

    vectors: Matrix
    offsets: NDArray[np.int64]


def pack_tokens(matrices: Sequence[Matrix]) -> Matrix:
    """Return rows of (number of vectors, width, vectors), padded to the longest in the batch."""
    width = matrices[0].shape[1]
    most = max(1, max(len(vectors) for vectors in matrices))
    packed = np.zeros((len(matrices), 2 + most * width), dtype=np.float32)
    for row, vectors in zip(packed, matrices, strict=True):
        row[0], row[1] = len(vectors), width
        row[2 : 2 + vectors.size] = vectors.ravel()
    return packed


def _unpack_tokens(encoded: Encoded, start: int = 0, stop: int | None = None) -> TokenRows:
    """Return the token vectors of a range of texts, from rows that `pack_tokens` made."""
    lengths, parts = [0], []
    for row in encoded.cache.rows(encoded.indexes[start:stop]):
        count, width = int(row[0]), int(row[1])
        lengths.append(count)
        parts.append(row[2 : 2 + count * width].reshape(count, width))
    vectors = np.concatenate(parts) if parts else np.zeros((0, 1), dtype=np.float32)
    return TokenRows(vectors, np.cumsum(lengths))


def _score_by_tokens(queries: Encoded, documents: Encoded) -> tuple[Score, int]:
    """Return a function that scores by MaxSim, and how many floats it needs per document."""
    query_tokens = _unpack_tokens(queries)

    def score(start: int, stop: int) -> Matrix:
        return maxsim(query_tokens, _unpack_tokens(documents, start, stop))

    return score, _DOCUMENT_TOKENS * len(query_tokens.vectors)


def maxsim(queries: TokenRows, documents: TokenRows) -> Matrix:
    """Return the MaxSim scores, of shape (queries, documents).

    A score is the sum, over the tokens of the query, of the highest dot product with any token of
    the document. Texts without tokens score 0.
    """
    shape = (len(queries.offsets) - 1, len(documents.offsets) - 1)
    scores = np.zeros(shape, dtype=np.float32)
    document_rows = np.flatnonzero(np.diff(documents.offsets))
    query_rows = np.flatnonzero(np.diff(queries.offsets))
    if not (len(document_rows) and len(query_rows)):
        return scores
    products = documents.vectors @ queries.vectors.T
    best = np.maximum.reduceat(products, documents.offsets[document_rows], axis=0)
    sums = np.add.reduceat(best, queries.offsets[query_rows], axis=1)
    scores[np.ix_(query_rows, document_rows)] = sums.T
    return scores
