"""Learned sparse and late-interaction retrieval against the library's own scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import r2med
from r2med.errors import DataError
from r2med.retrieve.multi import Tokens, maxsim
from tests.retrieve.checkpoints import save_model, save_tokenizer
from tests.retrieve.small_task import DOCUMENTS, QUERIES, own_task

library = pytest.importorskip("sentence_transformers")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")


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


def test_a_colbert_checkpoint_scores_as_its_library_does(tmp_path: Path) -> None:
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


@pytest.fixture(scope="module")
def splade(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from sentence_transformers.sparse_encoder import modules

    plain, folder = tmp_path_factory.mktemp("masked"), tmp_path_factory.mktemp("splade")
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        initializer_range=0.5,
    )
    transformers.BertForMaskedLM(config).save_pretrained(plain)
    save_tokenizer(plain, "[CLS] $A [SEP]")
    parts = [modules.MLMTransformer(str(plain)), modules.SpladePooling(pooling_strategy="max")]
    library.SparseEncoder(modules=parts, device="cpu").save_pretrained(str(folder))
    return folder


def test_scores_are_the_librarys_dot_products(splade: Path) -> None:
    model = library.SparseEncoder(str(splade), device="cpu")
    queries = model.encode_query(list(QUERIES.values()), convert_to_sparse_tensor=False)
    documents = model.encode_document(list(DOCUMENTS.values()), convert_to_sparse_tensor=False)
    expected = (queries @ documents.T).tolist()

    run = r2med.evaluate(f"splade:{splade}", own_task()).run

    for row, query in enumerate(QUERIES):
        found = dict(run.ranking(query))
        wanted = dict(zip(DOCUMENTS, expected[row], strict=True))
        assert found == pytest.approx(wanted, rel=1e-4)
        assert list(found) == sorted(found, key=lambda name: -found[name])


def test_a_second_run_takes_its_weights_from_the_store(splade: Path) -> None:
    r2med.evaluate(f"splade:{splade}", own_task())

    again: Any = r2med.evaluate(f"splade:{splade}", own_task(), force=True).record.facts

    facts = again[f"splade:{splade}"]
    assert facts["documents"]["reused"] == 4
    assert facts["queries"]["first"] == "[CLS] why does the heart cough [SEP]"


@pytest.mark.parametrize("kind", ["splade", "colbert"])
def test_a_checkpoint_of_another_kind_is_refused_instead_of_completed_at_random(
    kind: str, tmp_path: Path
) -> None:
    if kind == "colbert" and not hasattr(library, "MultiVectorEncoder"):
        pytest.skip("needs sentence-transformers with MultiVectorEncoder")
    dense = library.SentenceTransformer(str(save_model(tmp_path / "bert", "bert")), device="cpu")
    dense.save_pretrained(str(tmp_path / "dense"))

    with pytest.raises(DataError, match=r"lacks .* they would be random"):
        r2med.evaluate(f"{kind}:{tmp_path / 'dense'}", own_task())
