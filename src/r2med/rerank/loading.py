"""Load a sequence classifier: a whole checkpoint, or a LoRA adapter merged into its base."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from r2med.errors import DataError
from r2med.rerank.extras import needed
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.backbone import chosen_device, quiet_loading
from r2med.retrieve.dense.checkpoint import Checkpoint
from r2med.retrieve.dense.loading import failures_told


def load_classifier(
    checkpoint: Checkpoint, base: Checkpoint | None, *, dtype: str, conditions: Conditions
) -> Any:
    """The classifier in evaluation mode, on its device."""
    needed("torch", "transformers")
    model, absent = _pretrained(base or checkpoint, dtype, conditions, labels=1 if base else None)
    if base:
        model = _merged(model, checkpoint)
    elif absent:
        raise DataError(
            f"{checkpoint.folder}: the checkpoint lacks {absent[0]}, which would start at random "
            f"in {type(model).__name__}, so it is no reranker."
        )
    return model.to(chosen_device(conditions)).eval()


def _pretrained(
    source: Checkpoint, dtype: str, conditions: Conditions, *, labels: int | None
) -> tuple[Any, list[str]]:
    """The classifier, and the weights that its files lack."""
    from transformers import AutoModelForSequenceClassification

    trust = conditions.trust_remote_code
    told = {} if labels is None else {"num_labels": labels}
    with failures_told(source.folder), quiet_loading(), _unwarned():
        model, info = AutoModelForSequenceClassification.from_pretrained(
            source.folder,
            dtype=dtype,
            trust_remote_code=trust,
            output_loading_info=True,
            **told,
        )
    return model, sorted(info["missing_keys"])


@contextmanager
def _unwarned() -> Iterator[None]:
    """Transformers warns of weights that are missing; they are judged here instead."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _merged(model: Any, adapter: Checkpoint) -> Any:
    needed("peft")
    from peft import PeftModel

    return PeftModel.from_pretrained(model, str(adapter.folder)).merge_and_unload()
