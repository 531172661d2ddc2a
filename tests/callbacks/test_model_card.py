"""A model card gets results as the hub's `model-index`, and keeps everything else."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import ModelCard

import r2med
from r2med.callbacks import update_model_card


def test_a_new_card_has_the_results(tmp_path: Path) -> None:
    result = r2med.evaluate("bm25", "demo/biology")

    path = update_model_card(tmp_path, [result], model_name="mine", metrics=["ndcg@10"])

    card = ModelCard.load(path)
    [entry] = card.data.eval_results or []
    assert path == tmp_path / "README.md"
    assert card.data.model_name == "mine"
    assert entry.metric_type == "ndcg_at_10"
    assert entry.metric_value == round(result.metrics["ndcg@10"], 5)
    assert entry.dataset_name == "demo/biology (demo)"


def test_an_existing_card_keeps_its_text_and_the_results_of_other_tasks(tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    card.write_text("---\nlicense: mit\ntags: [dense]\n---\n\n# Mine\n\nTrained on X.\n")
    first = r2med.evaluate("bm25", "demo/biology")
    second = r2med.evaluate("bm25", "demo/medqa-diag")

    update_model_card(card, [first], metrics=["ndcg@10"])
    update_model_card(card, [second], metrics=["ndcg@10"])
    update_model_card(card, [first], metrics=["ndcg@10"])

    loaded = ModelCard.load(card)
    assert "Trained on X." in loaded.text
    assert loaded.data.license == "mit"
    names = [entry.dataset_name for entry in loaded.data.eval_results or []]
    assert sorted(names) == ["demo/biology (demo)", "demo/medqa-diag (demo)"]
