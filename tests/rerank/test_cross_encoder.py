"""Cross-encoders score exactly as a few lines of plain transformers code do."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.errors import DataError, MissingError, UsageError
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.rerank.cross_encoder import CrossEncoderSettings, build
from r2med.rerank.scores import Candidates
from r2med.settings import parse_settings
from r2med.systems.registry import entries

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore")

from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: E402

from tests.rerank import tiny  # noqa: E402


def lists(count: int = 3, documents: int = 7) -> list[Candidates]:
    """Texts of very different lengths, some beyond what the models read."""
    draw = random.Random(5)

    def text(most: int) -> str:
        return " ".join(draw.choices(tiny.WORDS, k=draw.randint(1, most)))

    return [
        Candidates(f"q{q}", text(50), [f"d{d}" for d in range(documents)], [text(90)] * 2
                   + [text(90) for _ in range(documents - 3)] + [""])
        for q in range(count)
    ]  # fmt: skip


def reranker(name: str, batch_tokens: int = 4096, **options: str) -> Any:
    entry = entries()[name].override(options)
    return build(
        name,
        parse_settings(CrossEncoderSettings, entry.fields),
        Resources(RunOptions(batch_tokens=batch_tokens)),
    )


def one_by_one(model: Any, tokens: Any, pairs: list[tuple[str, str]], limit: int) -> Any:
    """The logits of each pair alone: no padding, no batch, no cache."""
    rows = []
    for query, document in pairs:
        inputs = tokens([query], [document], truncation=True, max_length=limit, return_tensors="pt")
        with torch.no_grad():
            rows.append(model(**inputs).logits[0].numpy())
    return np.stack(rows)


def pairs_of(candidates: list[Candidates], query: str = "", document: str = "") -> Any:
    return [(query + c.query, document + text) for c in candidates for text in c.documents]


@pytest.mark.parametrize("batch_tokens", [1, 4096])
def test_monobert_is_the_second_logit_of_a_bert(tmp_path: Path, batch_tokens: int) -> None:
    folder, candidates = tiny.save_bert(tmp_path / "bert"), lists()
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    plain = one_by_one(model, AutoTokenizer.from_pretrained(folder), pairs_of(candidates), 48)

    scored = (
        reranker("monobert", batch_tokens, checkpoint=str(folder), max_length="48")
        .rerank(candidates)
        .scores
    )

    np.testing.assert_allclose(np.concatenate(scored), plain[:, 1], atol=1e-5)


@pytest.mark.parametrize("batch_tokens", [1, 4096])
def test_bge_reranker_is_the_one_logit_of_an_xlm_roberta(tmp_path: Path, batch_tokens: int) -> None:
    folder, candidates = tiny.save_xlmr(tmp_path / "xlmr"), lists()
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    plain = one_by_one(model, AutoTokenizer.from_pretrained(folder), pairs_of(candidates), 48)

    scored = (
        reranker("bge-reranker", batch_tokens, checkpoint=str(folder), max_length="48")
        .rerank(candidates)
        .scores
    )

    np.testing.assert_allclose(np.concatenate(scored), plain[:, 0], atol=1e-5)


@pytest.mark.parametrize("batch_tokens", [1, 4096])
def test_rankllama_is_a_merged_adapter_with_prefixes(tmp_path: Path, batch_tokens: int) -> None:
    from peft import PeftModel

    base = tiny.save_llama(tmp_path / "llama")
    adapter, candidates = tiny.save_lora(base, tmp_path / "lora"), lists()
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload().eval()
    pairs = pairs_of(candidates, "query: ", "document: ")
    plain = one_by_one(merged, AutoTokenizer.from_pretrained(base), pairs, 64)

    scored = (
        reranker(
            "rankllama",
            batch_tokens,
            checkpoint=str(adapter),
            base=str(base),
            max_length="64",
            dtype="float32",
        )
        .rerank(candidates)
        .scores
    )

    np.testing.assert_allclose(np.concatenate(scored), plain[:, 0], atol=1e-5)


@pytest.mark.parametrize("part", ["base", "adapter"])
def test_weights_that_neither_the_base_nor_the_adapter_has_are_an_error(
    tmp_path: Path, part: str
) -> None:
    from safetensors.torch import load_file, save_file

    base = tiny.save_llama(tmp_path / "llama")
    adapter = tiny.save_lora(base, tmp_path / "lora")
    model_file, adapter_file = base / "model.safetensors", adapter / "adapter_model.safetensors"
    weights = load_file(model_file)
    lacking = "model.layers.1.mlp.up_proj.weight" if part == "base" else "score.weight"
    weights.pop(lacking)
    save_file(weights, model_file, metadata={"format": "pt"})
    if part == "adapter":
        head = load_file(adapter_file)
        save_file({name: head[name] for name in head if "score" not in name}, adapter_file)

    with pytest.raises(DataError, match=rf"lacks 1 of the weights .* {lacking}"):
        reranker("rankllama", checkpoint=str(adapter), base=str(base)).rerank(lists(1))


def test_medcpts_cross_encoder_is_one_logit_of_512_tokens(tmp_path: Path) -> None:
    folder, candidates = tiny.save_bert(tmp_path / "bert", labels=1), lists()
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    plain = one_by_one(model, AutoTokenizer.from_pretrained(folder), pairs_of(candidates), 48)

    scored = (
        reranker("medcpt-ce", checkpoint=str(folder), max_length="48").rerank(candidates).scores
    )

    np.testing.assert_allclose(np.concatenate(scored), plain[:, 0], atol=1e-5)
    assert entries()["medcpt-ce"].fields["max_length"] == 512


def test_any_cross_encoder_reads_as_much_as_its_tokeniser_allows(tmp_path: Path) -> None:
    folder, candidates = tiny.save_bert(tmp_path / "bert", labels=1), lists()
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    plain = one_by_one(model, AutoTokenizer.from_pretrained(folder), pairs_of(candidates), 64)

    scored = reranker("ce", checkpoint=str(folder)).rerank(candidates).scores

    np.testing.assert_allclose(np.concatenate(scored), plain[:, 0], atol=1e-5)


def test_the_published_rerankers_read_what_the_protocol_says() -> None:
    told = {name: entries()[name] for name in ("bge-reranker", "monobert", "rankllama")}

    assert [told[name].fields["max_length"] for name in told] == [512, 512, 1024]
    assert {entry.tail for entry in told.values()} == {"drop"}


def test_a_checkpoint_without_a_classification_head_is_refused(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    folder = tiny.save_bert(tmp_path / "bert")
    BertModel(BertConfig(vocab_size=40, **tiny.SHAPE)).save_pretrained(folder)

    with pytest.raises(DataError, match=r"lacks .* weights .* such as classifier"):
        reranker("ce", checkpoint=str(folder)).rerank(lists())


def test_a_model_with_many_labels_asks_which_one(tmp_path: Path) -> None:
    folder = tiny.save_bert(tmp_path / "bert", labels=3)

    with pytest.raises(UsageError, match=r"3 logits per pair\. Choose the one"):
        reranker("ce", checkpoint=str(folder)).rerank(lists())


def test_a_published_logit_that_a_checkpoint_lacks_is_named(tmp_path: Path) -> None:
    folder = tiny.save_bert(tmp_path / "bert", labels=1)

    with pytest.raises(UsageError, match=r"has 1 logits per pair\. Choose the one"):
        reranker("monobert", checkpoint=str(folder), max_length="48").rerank(lists())


def test_a_folder_that_does_not_exist_is_named() -> None:
    with pytest.raises(MissingError, match=r"checkpoint '\./nowhere': not a folder with a model"):
        reranker("ce", checkpoint="./nowhere").rerank(lists())


def test_running_out_of_memory_halves_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, told = tiny.save_bert(tmp_path / "bert"), list[str]()
    entry = entries()["ce"].override({"checkpoint": str(folder)})
    made = build(
        "ce", parse_settings(CrossEncoderSettings, entry.fields), Resources(warn=told.append)
    )
    encode = made.scorer.encode  # type: ignore[attr-defined]

    def cramped(inputs: Any, rows: Any) -> Any:
        if len(rows) > 4:
            raise RuntimeError("CUDA out of memory")
        return encode(inputs, rows)

    monkeypatch.setattr(made.scorer, "encode", cramped)

    scored = made.rerank(lists()).scores

    assert [len(one) for one in scored] == [7, 7, 7]
    assert "out of memory at" in told[0]


def test_a_tokeniser_without_limit_is_cut_at_the_positions_that_the_model_learned(
    tmp_path: Path,
) -> None:
    folder = tiny.save_xlmr(tmp_path)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": int(1e30)}))
    long = Candidates("q", "fever", ["d"], ["cough " * 200])

    model = reranker("ce", checkpoint=str(folder))

    assert model.scorer.limit == 78  # of 80 positions, RoBERTa's first two hold no token
    assert np.isfinite(model.rerank([long]).scores[0]).all()
    with pytest.raises(DataError, match="the model failed on texts of up to 90 tokens"):
        reranker("ce", checkpoint=str(folder), max_length="90").rerank([long])
