"""Searching vectors: similarity and shortening, and documents that share a text."""

from __future__ import annotations

import numpy as np
import pytest

from r2med.execution.usage import Usage
from r2med.models.embedding_cache import EmbeddingCache, EncodedTexts
from r2med.models.encoding import Encoded, Form
from r2med.retrieve.dense.retriever import ExactIndex


def encoded(vectors: np.ndarray, distinct: list[int] | None = None) -> Encoded:
    cache = EmbeddingCache()
    addresses = Form().addresses([str(row) for row in range(len(vectors))])
    zeros, rows = np.zeros(len(vectors), dtype=np.int64), np.arange(len(vectors))
    cache.add(EncodedTexts(addresses, [vectors.astype(np.float32)], zeros, zeros > 0))
    return Encoded(
        cache, cache.find(addresses), rows if distinct is None else np.array(distinct), {}, Usage()
    )


def random_vectors(rows: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


def search(index: ExactIndex, queries: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    return index.search(index.scale(queries), depth=depth)


def test_cosine_ignores_length_and_dot_does_not() -> None:
    documents = encoded(np.array([[1, 0], [10, 10]]))
    query = np.array([[1, 0.5]], dtype=np.float32)

    by_cosine, _ = search(ExactIndex(documents, 10**6, "cosine"), query, depth=2)
    by_dot, _ = search(ExactIndex(documents, 10**6, "dot"), query, depth=2)

    assert by_cosine[0].tolist() == [1, 0]
    assert by_dot[0].tolist() == [1, 0]
    query = np.array([[1, 0]], np.float32)
    assert search(ExactIndex(documents, 10**6), query, depth=2)[0][0].tolist() == [0, 1]


def test_documents_with_equal_texts_tie_exactly_and_stand_in_corpus_order() -> None:
    documents = encoded(random_vectors(3, 8, 0), distinct=[0, 1, 0, 2, 0])
    query = documents.matrix(0, 1)

    found, scores = search(ExactIndex(documents, 10**6), query, depth=4)

    assert found[0, :3].tolist() == [0, 2, 4]
    assert len(set(scores[0, :3].tolist())) == 1


def test_a_zero_vector_scores_zero() -> None:
    documents = encoded(np.array([[0, 0], [1, 1]]))

    _, scores = search(ExactIndex(documents, 10**6), np.ones((1, 2), np.float32), depth=2)

    assert scores[0].tolist() == pytest.approx([1, 0])


def test_only_the_first_dimensions_count_when_told() -> None:
    documents = encoded(np.array([[1, 0, 9], [0, 1, 0]]))
    query = np.array([[0, 1, 5]], dtype=np.float32)

    found, scores = search(ExactIndex(documents, 10**6, dimensions=2), query, depth=1)

    assert found[0].tolist() == [1]
    assert scores[0, 0] == pytest.approx(1)


def test_vectors_that_do_not_fit_the_budget_are_read_as_needed() -> None:
    documents = encoded(random_vectors(300, 16, 3))
    queries = random_vectors(5, 16, 4)

    small = search(ExactIndex(documents, 1000), queries, depth=7)
    large = search(ExactIndex(documents, 10**8), queries, depth=7)

    np.testing.assert_array_equal(small[0], large[0])
