"""Write results into a Hugging Face model card, as the `model-index` that the hub shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from r2med.measure.metrics import HEADLINE
from r2med.results.record import Result


def update_model_card(
    path: str | Path,
    results: Sequence[Result],
    *,
    model_name: str | None = None,
    metrics: Sequence[str] = HEADLINE,
) -> Path:
    """Add results to a model card, and create the card if it does not exist.

    Results of the same task, metric and system that the card already has are replaced; everything
    else in the card is kept.

    Args:
        path: The card, usually `README.md` in the model's folder; or that folder.
        results: Results to add; all of one system.
        model_name: Model name for the card; by default the name in the card, or the system's name.
        metrics: Names of the metrics to add.

    Returns:
        The path of the card.
    """
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    card_path = Path(path)
    if card_path.is_dir():
        card_path = card_path / "README.md"
    name = model_name or results[0].name
    if card_path.exists():
        card = ModelCard.load(card_path)
    else:
        data = ModelCardData(model_name=name)
        card = ModelCard(f"---\n{data.to_yaml()}\n---\n\n# {name}\n")
    added = [
        EvalResult(
            task_type="retrieval",
            task_name=_task_title(result),
            dataset_type=_dataset(result),
            dataset_name=_task_title(result),
            dataset_config=result.task,
            dataset_split="test",
            metric_type=metric.replace("@", "_at_"),
            metric_name=metric,
            metric_value=round(result.metrics[metric], 5),
            dataset_args={"data_hash": result.record.task.hash},
        )
        for result in results
        for metric in metrics
    ]
    replaced = {(entry.dataset_name, entry.metric_type) for entry in added}
    remaining_lines = [
        entry
        for entry in card.data.eval_results or []
        if (entry.dataset_name, entry.metric_type) not in replaced
    ]
    card.data.model_name = model_name or card.data.model_name or name
    card.data.eval_results = [*remaining_lines, *added]
    card.save(card_path)
    return card_path


def _task_title(result: Result) -> str:
    task = result.record.task
    if task.suite is None:
        return f"{task.name} (local data)"
    title = f"{task.name} ({task.suite})"
    return f"{title}, not the published data" if task.differences else title


def _dataset(result: Result) -> str:
    """Return the dataset id that the hub links to.

    It is the dataset's repository if the result is on the published data.
    """
    from r2med.tasks.registry import registered_task

    entry = registered_task(result.task)
    if entry and entry.hub and not result.record.task.differences:
        return entry.hub.repo
    return f"r2med/{result.record.task.suite or 'local'}"
