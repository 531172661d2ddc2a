"""Cross-encoders: a sequence classifier reads query and document together; its logit is the score.

Raw logits are used, never probabilities: the order is the same, and none saturate into ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, UsageError
from r2med.models.batching import Rows, TokenInputs
from r2med.models.loading import load_classifier
from r2med.rerank.pair_model import PairModel, PairModelSettings
from r2med.rerank.scores import Pair, PairReranker
from r2med.retrieve.conditions import Conditions


@dataclass(frozen=True, kw_only=True)
class CrossEncoderSettings(PairModelSettings):
    """All that an entry of a cross-encoder may say."""

    logit: str
    query_prefix: str
    document_prefix: str


def build(name: str, settings: CrossEncoderSettings, conditions: Conditions) -> PairReranker:
    """A cross-encoder as an entry describes it."""
    if settings.logit != "auto" and not settings.logit.isdecimal():
        raise UsageError(f"{name}[logit={settings.logit}]: expected auto or a number from 0.")
    return PairReranker(name, CrossEncoder(name, settings, conditions), conditions)


class CrossEncoder(PairModel):
    """A classifier, and which of its logits is the score."""

    kind = "cross-encoder"

    def __init__(self, name: str, settings: CrossEncoderSettings, conditions: Conditions) -> None:
        super().__init__(name, settings, conditions)
        self.settings = settings

    def load(self, folder: Path) -> Any:
        """The classifier; under an adapter, with the one label that the adapter's head gives."""
        return load_classifier(
            folder,
            dtype=self.settings.dtype,
            trust_remote_code=self.conditions.trust_remote_code,
            labels=1 if self.base else None,
        )

    def inputs(self, pairs: Sequence[Pair]) -> TokenInputs:
        """Both texts with the tokeniser's own separators, the longer one cut first."""
        encoded = self.tokenizer(
            [f"{self.settings.query_prefix}{query}" for query, _ in pairs],
            [f"{self.settings.document_prefix}{document}" for _, document in pairs],
            truncation="longest_first",
            max_length=self.limit,
            return_attention_mask=False,
        )
        return TokenInputs.of(self.tokenizer, encoded, limit=self.limit)

    def forward(self, inputs: TokenInputs, rows: Rows) -> NDArray[np.float32]:
        """The one logit, the second of two, or the one that `logit` names."""
        logits = self.logits(inputs.features(rows))
        wanted, width = self.settings.logit, logits.shape[1]
        if wanted == "auto" and width > 2:
            raise UsageError(
                f"{self.checkpoint.name} gives {width} logits per pair. Say which one is the score "
                f"with [logit=N], N from 0 to {width - 1}."
            )
        column = width - 1 if wanted == "auto" else int(wanted)
        if column >= width:
            raise DataError(
                f"{self.checkpoint.name} gives {width} logits per pair, so there is no logit "
                f"{column}. Is it a cross-encoder of another kind?"
            )
        chosen: NDArray[np.float32] = np.ascontiguousarray(logits[:, column])
        return chosen
