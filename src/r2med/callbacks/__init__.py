"""Results in the tools people already use: experiment trackers, model cards, training loops.

Every function takes results of `r2med.evaluate` or `r2med.Store`. The libraries are imported when a
function is called, so none of them is needed otherwise.

    import r2med
    from r2med.callbacks import log_to_mlflow

    results = r2med.evaluate_all("bm25", "demo")
    log_to_mlflow(results, experiment="medical retrieval")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.callbacks.model_card import update_model_card
from r2med.callbacks.trackers import log_to_mlflow, log_to_tensorboard, log_to_wandb

if TYPE_CHECKING:
    from r2med.callbacks.evaluator import R2MedEvaluator

__all__ = [
    "R2MedEvaluator",
    "log_to_mlflow",
    "log_to_tensorboard",
    "log_to_wandb",
    "update_model_card",
]


def __getattr__(name: str) -> object:
    if name == "R2MedEvaluator":  # a subclass of a sentence-transformers class
        from r2med.callbacks.evaluator import R2MedEvaluator

        return R2MedEvaluator
    raise AttributeError(f"module 'r2med.callbacks' has no attribute {name!r}")
