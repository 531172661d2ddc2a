"""A sentence-transformers evaluator that measures retrieval on tasks while a model is trained."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_transformers.evaluation import SentenceEvaluator

from r2med.evaluation.evaluate import TaskLike, evaluate
from r2med.measure.metrics import parse_metric
from r2med.systems.build import System

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class R2MedEvaluator(SentenceEvaluator):  # type: ignore[misc]
    """Evaluate a SentenceTransformer on retrieval tasks, for use in its `Trainer`.

    Scores are those of `r2med.evaluate` on the model at that step. Nothing is stored unless
    `results` names a folder.

    Args:
        tasks: Task names, folders or loaded tasks.
        metrics: Names of the metrics to report; the mean of the first one over the tasks is the
            primary metric.
        name: Prefix of the reported metrics.
        sample: Number of judged queries of each task, sampled with a fixed seed; by default all.
        results: A folder to store each evaluation in, under the name `NAME-STEPS`.

    Examples:
        evaluator = R2MedEvaluator(["demo/biology", "demo/medqa-diag"])
        trainer = SentenceTransformerTrainer(model, ..., evaluator=evaluator)
    """

    def __init__(
        self,
        tasks: TaskLike | Sequence[TaskLike],
        *,
        metrics: Sequence[str] = ("ndcg@10",),
        name: str = "r2med",
        sample: int | None = None,
        results: str | Path | None = None,
    ) -> None:
        super().__init__()
        several = isinstance(tasks, Sequence) and not isinstance(tasks, str)
        self.tasks: list[TaskLike] = list(tasks) if several else [tasks]  # type: ignore[arg-type, list-item]
        self.metrics = [str(parse_metric(metric)) for metric in metrics]
        self.name = name
        self.sample = sample
        self.results = results
        self.greater_is_better = True
        self.primary_metric = f"{name}_{self.metrics[0]}"

    def __call__(
        self,
        model: SentenceTransformer,
        output_path: str | None = None,
        epoch: int = -1,
        steps: int = -1,
        *args: Any,
        **kwargs: Any,
    ) -> dict[str, float]:
        """Return the mean of each metric over the tasks, and its value on each task."""
        label = self.name if steps < 0 else f"{self.name}-{steps}"
        system = System.from_model(model, name=label)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(self.results or scratch)
            measured = [
                evaluate(
                    system,
                    task,
                    results=folder,
                    metrics=self.metrics,
                    sample=self.sample,
                    force=True,
                    progress=False,
                )
                for task in self.tasks
            ]
            scores: dict[str, float] = {}
            for metric in self.metrics:
                values = [result.metrics[metric] for result in measured]
                scores[f"{self.name}_{metric}"] = sum(values) / len(values)
                for result, value in zip(measured, values, strict=True):
                    scores[f"{self.name}_{result.task}_{metric}"] = value
        self.store_metrics_in_model_card_data(model, scores, epoch, steps)
        return scores
