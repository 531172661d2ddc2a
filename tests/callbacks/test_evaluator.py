"""The evaluator measures a model inside a real training run of sentence-transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

import r2med
from tests.retrieve.checkpoints import save_model, save_modules

pytestmark = pytest.mark.extra("dense")


@pytest.mark.filterwarnings("ignore")
def test_a_trainer_reports_the_scores_that_evaluate_gives(tmp_path: Path) -> None:
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
    )

    from r2med.callbacks import R2MedEvaluator

    checkpoint = save_model(tmp_path / "tiny", "bert")
    save_modules(checkpoint, pooling="mean")
    model = SentenceTransformer(str(checkpoint), device="cpu")
    task = r2med.load_task("demo/biology")
    pairs = Dataset.from_dict(
        {
            "anchor": task.queries.texts[:8],
            "positive": [task.corpus.texts[index].as_py() for index in range(8)],
        }
    )
    evaluator = R2MedEvaluator("demo/biology", metrics=["ndcg@10", "recall@100"])
    before = evaluator(model)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=3,
        eval_strategy="steps",
        eval_steps=3,
        learning_rate=0.05,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
    )
    trainer = SentenceTransformerTrainer(
        model,
        arguments,
        train_dataset=pairs,
        loss=losses.MultipleNegativesRankingLoss(model),
        evaluator=evaluator,
    )

    trainer.train()

    logged = next(row for row in trainer.state.log_history if "eval_r2med_ndcg@10" in row)
    after = r2med.evaluate(r2med.System.from_model(model, name="after"), task, force=True)
    assert logged["eval_r2med_ndcg@10"] == pytest.approx(after.metrics["ndcg@10"], abs=1e-6)
    assert logged["eval_r2med_demo/biology_recall@100"] == pytest.approx(
        after.metrics["recall@100"], abs=1e-6
    )
    assert before["r2med_ndcg@10"] != logged["eval_r2med_ndcg@10"]
