"""Rerankers whose checkpoint brings its own code: a model with rerank(query, documents).

The code runs only where the caller trusts it. It sees a whole list at a time, so scores of one
list say nothing about another and are not kept by pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from r2med.errors import DataError, UsageError
from r2med.models.checkpoint import Checkpoint, locate
from r2med.models.loading import chosen_device, foreign_code, load_encoder, need
from r2med.rerank.user_models import ListReranker
from r2med.retrieve.conditions import Conditions
from r2med.settings import identity_of, setting


@dataclass(frozen=True)
class OwnCodeSettings:
    """All that an entry of such a reranker may say."""

    dtype: Literal["auto", "float32", "float16", "bfloat16"]
    checkpoint: str = setting(identity="content")


def build(name: str, settings: OwnCodeSettings, conditions: Conditions) -> ListReranker:
    """The reranker; a UsageError unless the checkpoint's code may run."""
    if not conditions.trust_remote_code:
        raise UsageError(foreign_code(f"{name}: {settings.checkpoint}"))
    model = OwnCode(settings, conditions)
    identity = {"checkpoint": model.checkpoint.fingerprint(), **identity_of(settings)}
    return ListReranker(name, model, identity, conditions)


class OwnCode:
    """The model, loaded when the first list is ranked."""

    def __init__(self, settings: OwnCodeSettings, conditions: Conditions) -> None:
        self.settings = settings
        self.conditions = conditions
        self.checkpoint: Checkpoint = locate(settings.checkpoint)

    def rank(self, query: str, documents: Sequence[str]) -> list[int]:
        """Positions, best first, by the `index` of each row that the model gives."""
        rows = self._model.rerank(query, list(documents))
        try:
            ordered = sorted(rows, key=lambda row: -float(row["relevance_score"]))
            return [int(row["index"]) for row in ordered]
        except (TypeError, KeyError, ValueError):
            raise DataError(
                f"{self.checkpoint.name}: rerank gave {rows!r:.80}, expected rows with an index "
                "and a relevance_score."
            ) from None

    @cached_property
    def _model(self) -> Any:
        need("torch", "transformers", extra="rerank")
        folder, dtype = self.checkpoint.folder, self.settings.dtype
        model = load_encoder(folder, dtype=dtype, trust_remote_code=True)
        if not callable(getattr(model, "rerank", None)):
            raise DataError(
                f"{self.checkpoint.name}: {type(model).__name__} has no rerank(query, documents)."
            )
        return model.to(chosen_device(self.conditions.device)).eval()
