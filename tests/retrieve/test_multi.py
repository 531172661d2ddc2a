"""Learned sparse and late-interaction retrieval against the library's own scores."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import r2med
from r2med.errors import DataError, MissingError
from r2med.retrieve.multi import TokenRows, maxsim
from tests.retrieve.checkpoints import save_model, save_tokenizer
from tests.retrieve.small_task import DOCUMENTS, QUERIES, own_task

library = pytest.importorskip("sentence_transformers")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")


def tokens(lengths: list[int], seed: int) -> TokenRows:
    vectors = np.random.default_rng(seed).standard_normal((sum(lengths), 3)).astype(np.float32)
    return TokenRows(vectors, np.cumsum([0, *lengths]))


def part(texts: TokenRows, row: int) -> np.ndarray:
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

    again: Any = r2med.evaluate(f"splade:{splade}", own_task(), results="other").record.facts

    facts = again[f"splade:{splade}"]
    assert facts["documents"]["reused"] == 4
    assert facts["queries"]["first"] == "[CLS] why does the heart cough [SEP]"


def late_checkpoint(folder: Path) -> Path:
    """A tiny ModernColBERT as PyLate saves one: ModernBERT, a projection, settings beside them."""
    import torch
    from safetensors.torch import save_file

    save_model(folder, "modernbert")
    modules = [("Transformer", ""), ("Dense", "1_Dense")]
    types = ("sentence_transformers.models.Transformer", "pylate.models.Dense.Dense")
    rows = [
        {"idx": i, "name": str(i), "path": path, "type": types[i]}
        for i, (_, path) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "1_Dense").mkdir()
    plain = "torch.nn.modules.linear.Identity"
    shape = {"in_features": 32, "out_features": 16, "bias": False, "activation_function": plain}
    (folder / "1_Dense" / "config.json").write_text(json.dumps(shape))
    torch.manual_seed(5)
    save_file({"linear.weight": torch.randn(16, 32)}, folder / "1_Dense" / "model.safetensors")
    told = {
        "model_type": "ColBERT",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 20,
        "document_length": 40,
        "do_query_expansion": True,
        "attend_to_expansion_tokens": False,
        "skiplist_words": ["."],
    }
    (folder / "config_sentence_transformers.json").write_text(json.dumps(told))
    return folder


@cache
def plain(folder: Path) -> tuple[Any, Any]:
    """Tokeniser and model by plain transformers."""
    model = transformers.AutoModel.from_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder), model.eval()


def late_vectors(folder: Path, text: str, *, query: bool, limit: int) -> np.ndarray:
    """One text by plain transformers: prefix, padding with [MASK] to the length, projection."""
    import torch
    from safetensors.torch import load_file

    tokenizer, model = plain(folder)
    prefix = "[Q] " if query else "[D] "
    ids = tokenizer(prefix + text, truncation=True, max_length=limit)["input_ids"]
    attended = [1] * len(ids)
    if query:
        attended += [0] * (limit - len(ids))
        ids = ids + [tokenizer.mask_token_id] * (limit - len(ids))
    batch = {"input_ids": torch.tensor([ids]), "attention_mask": torch.tensor([attended])}
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state[0]
    weight = load_file(folder / "1_Dense" / "model.safetensors")["linear.weight"]
    vectors = torch.nn.functional.normalize(hidden @ weight.T, dim=-1).numpy()
    full_stop = tokenizer.convert_tokens_to_ids(".")
    kept: np.ndarray = vectors if query else vectors[[token != full_stop for token in ids]]
    return kept


@pytest.mark.parametrize("batch_tokens", [1, 100_000])
def test_a_moderncolbert_scores_as_plain_transformers_do(tmp_path: Path, batch_tokens: int) -> None:
    folder = late_checkpoint(tmp_path / "late")
    system = f"reason-moderncolbert[checkpoint={folder},query_max_length=12,document_max_length=9]"
    resources = r2med.Resources(r2med.RunOptions(device="cpu", batch_tokens=batch_tokens))

    run = r2med.evaluate(system, own_task(), resources=resources).run

    for query, text in QUERIES.items():
        asked = late_vectors(folder, text, query=True, limit=12)
        held = {
            name: late_vectors(folder, document, query=False, limit=9)
            for name, document in DOCUMENTS.items()
        }
        wanted = {
            name: float((asked @ vectors.T).max(axis=1).sum()) for name, vectors in held.items()
        }
        assert dict(run.ranking(query)) == pytest.approx(wanted, abs=1e-5)


@pytest.fixture(scope="module")
def m3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    folder = save_model(tmp_path_factory.mktemp("m3"), "xlm-roberta")
    torch.manual_seed(9)
    for name, width in (("sparse_linear", 1), ("colbert_linear", 8)):
        torch.save(torch.nn.Linear(32, width).state_dict(), folder / f"{name}.pt")
    return folder


def m3_tokens(folder: Path, text: str, head: str) -> tuple[list[int], Any]:
    """Token ids of one text and what a head makes of each, by plain transformers."""
    import torch

    tokenizer, model = plain(folder)
    weights = torch.load(folder / f"{head}_linear.pt", weights_only=True)
    batch = tokenizer(text, truncation=True, max_length=8, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state[0]
        read = hidden @ weights["weight"].T + weights["bias"]
    return batch["input_ids"][0].tolist(), read


def m3_score(folder: Path, query: str, document: str, head: str) -> float:
    import torch

    (asked, read), (held, other) = (m3_tokens(folder, text, head) for text in (query, document))
    if head == "colbert":
        unit = torch.nn.functional.normalize
        products = unit(read[1:], dim=-1) @ unit(other[1:], dim=-1).T
        return float(products.max(dim=1).values.sum())
    sides = []
    for ids, values in ((asked, read), (held, other)):
        weighed: dict[int, float] = {}
        for token, value in list(zip(ids, values.relu()[:, 0].tolist(), strict=True))[1:-1]:
            weighed[token] = max(weighed.get(token, 0.0), value)
        sides.append(weighed)
    return sum(weight * sides[1].get(token, 0.0) for token, weight in sides[0].items())


@pytest.mark.parametrize("batch_tokens", [1, 100_000])
@pytest.mark.parametrize(
    ("name", "head"), [("bge-m3-sparse", "sparse"), ("bge-m3-multi", "colbert")]
)
def test_the_heads_of_bge_m3_score_as_plain_transformers_do(
    m3: Path, name: str, head: str, batch_tokens: int
) -> None:
    cut = "max_length=8" if head == "sparse" else "document_max_length=8,query_max_length=8"
    resources = r2med.Resources(r2med.RunOptions(device="cpu", batch_tokens=batch_tokens))

    run = r2med.evaluate(f"{name}[checkpoint={m3},{cut}]", own_task(), resources=resources).run

    for query, text in QUERIES.items():
        wanted = {key: m3_score(m3, text, document, head) for key, document in DOCUMENTS.items()}
        assert dict(run.ranking(query)) == pytest.approx(wanted, abs=1e-5)


def test_a_checkpoint_without_the_heads_of_bge_m3_is_named(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "plain", "xlm-roberta")

    with pytest.raises(MissingError, match=r"No such file .*sparse_linear\.pt"):
        r2med.evaluate(f"bge-m3-sparse[checkpoint={folder}]", own_task())


def test_a_library_that_is_too_old_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(library, "MultiVectorEncoder", raising=False)
    folder = save_model(tmp_path / "bert", "bert")

    with pytest.raises(MissingError, match="pip install --upgrade sentence-transformers"):
        r2med.evaluate(f"colbert:{folder}", own_task())


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
