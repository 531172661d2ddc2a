"""Late interaction against a plain reading of MaxSim, and against the library's own scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import r2med
from r2med.retrieve.late.maxsim import Tokens, maxsim, top_by_maxsim
from tests.retrieve.checkpoints import save_model
from tests.retrieve.small_task import DOCUMENTS, QUERIES, own_task


def tokens(lengths: list[int], seed: int) -> Tokens:
    vectors = np.random.default_rng(seed).standard_normal((sum(lengths), 3)).astype(np.float32)
    return Tokens(vectors, np.cumsum([0, *lengths]))


def part(texts: Tokens, row: int) -> np.ndarray:
    return texts.vectors[texts.offsets[row] : texts.offsets[row + 1]]


lengths = st.lists(st.integers(0, 4), min_size=1, max_size=6)


@settings(max_examples=50, deadline=None)
@given(lengths, lengths, st.integers(0, 5))
def test_maxsim_is_the_sum_of_each_query_tokens_best_product(
    asked: list[int], held: list[int], seed: int
) -> None:
    queries, documents = tokens(asked, seed), tokens(held, seed + 1)

    scores = maxsim(queries, documents)

    for q in range(len(asked)):
        for d in range(len(held)):
            products = part(queries, q) @ part(documents, d).T
            expected = products.max(axis=1).sum() if products.size else 0
            assert scores[q, d] == pytest.approx(float(expected), abs=1e-5)


def test_blocks_of_documents_change_nothing() -> None:
    queries, documents = tokens([3, 2], 0), tokens([2] * 50, 1)

    def some(start: int, stop: int) -> Tokens:
        first, last = documents.offsets[start], documents.offsets[stop]
        return Tokens(documents.vectors[first:last], documents.offsets[start : stop + 1] - first)

    small = top_by_maxsim(queries, some, 50, depth=7, memory=1)
    large = top_by_maxsim(queries, some, 50, depth=7, memory=10**9)

    np.testing.assert_array_equal(small[0], large[0])


@pytest.mark.filterwarnings("ignore")
def test_a_colbert_checkpoint_scores_as_its_library_does(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    if not hasattr(library, "MultiVectorEncoder"):
        pytest.skip("needs sentence-transformers with MultiVectorEncoder")
    made = library.MultiVectorEncoder(str(save_model(tmp_path / "bert", "bert")), device="cpu")
    made.save_pretrained(str(tmp_path / "colbert"))
    model = library.MultiVectorEncoder(str(tmp_path / "colbert"), device="cpu")
    queries = model.encode_query(list(QUERIES.values()))
    documents = model.encode_document(list(DOCUMENTS.values()))
    expected = model.similarity(queries, documents)

    run = r2med.evaluate(f"colbert:{tmp_path / 'colbert'}", own_task()).run

    for row, query in enumerate(QUERIES):
        wanted = dict(zip(DOCUMENTS, expected[row].tolist(), strict=True))
        assert dict(run.ranking(query)) == pytest.approx(wanted, rel=1e-4)
