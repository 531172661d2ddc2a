"""Cross-encoders: a sequence classifier reads query and document together; its logit is the score.

Raw logits are used, never probabilities: the order is the same, and none saturate into ties.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, UsageError
from r2med.models.batching import Batches, Rows, TokenInputs
from r2med.models.checkpoint import Checkpoint, locate
from r2med.models.loading import (
    chosen_device,
    load_classifier,
    load_tokenizer,
    named_failures,
    need,
)
from r2med.models.vectors import Computed
from r2med.rerank.scores import Pair, PairReranker
from r2med.retrieve.conditions import Conditions
from r2med.settings import identity_of, setting


@dataclass(frozen=True)
class CrossEncoderSettings:
    """All that an entry of a cross-encoder may say; rerankers.toml documents each field."""

    logit: str
    query_prefix: str
    document_prefix: str
    dtype: Literal["auto", "float32", "float16", "bfloat16"]
    checkpoint: str = setting(identity="content")
    base: str = setting(identity="content")
    max_length: int = setting(least=0)


def build(name: str, settings: CrossEncoderSettings, conditions: Conditions) -> PairReranker:
    """A cross-encoder as an entry describes it."""
    if not settings.checkpoint:
        raise UsageError(f"{name}: no model is given. Name one as in ce:PATH_OR_HUB_NAME.")
    if settings.logit != "auto" and not settings.logit.isdecimal():
        raise UsageError(f"{name}[logit={settings.logit}]: expected auto or a number from 0.")
    return PairReranker(name, CrossEncoder(settings, conditions), conditions)


class CrossEncoder:
    """A classifier, its tokeniser, and which of its logits is the score."""

    def __init__(self, settings: CrossEncoderSettings, conditions: Conditions) -> None:
        self.settings = settings
        self.conditions = conditions
        self._batches = Batches(conditions.batch_tokens, conditions.tell)
        self._first_seen: str | None = None

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The model's files, or those of the adapter."""
        return locate(self.settings.checkpoint)

    @cached_property
    def base(self) -> Checkpoint | None:
        """The model that an adapter changes; None when the checkpoint is a whole model."""
        adapter = self.checkpoint.json("adapter_config.json")
        if adapter is None:
            return None
        named = adapter.get("base_model_name_or_path")
        return locate(self.settings.base or str(named or ""), option="base")

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The files' content and how they are used."""
        return {
            "reranker": "cross-encoder",
            "checkpoint": self.checkpoint.fingerprint(),
            "base": self.base.fingerprint() if self.base else None,
            **identity_of(self.settings),
        }

    def score(self, pairs: Sequence[Pair]) -> Iterator[Computed]:
        """Batches of like length, longest first."""
        inputs = self._inputs(pairs)
        if self._first_seen is None and pairs:
            self._first_seen = inputs.seen(0)
        batches = self._batches.run(
            inputs.lengths,
            lambda rows: self._forward(inputs, rows),
            lambda row: f"{self.checkpoint.name}: the pair of query {pairs[row][0][:80]!r}",
        )
        for rows, scores in batches:
            yield Computed(rows, scores[:, None], inputs.lengths[rows], inputs.truncated[rows])

    def facts(self) -> Mapping[str, object]:
        """Where the weights came from, and the first pair as the model saw it."""
        facts = self.checkpoint.facts()
        if self.base:
            facts["base"] = self.base.name
        if self._first_seen is not None:
            facts["device"] = str(self._model.device)
            facts["dtype"] = str(self._model.dtype).removeprefix("torch.")
            facts["first"] = self._first_seen
        return facts

    @cached_property
    def _model(self) -> Any:
        """The classifier in evaluation mode, on its device; an adapter is merged into its base."""
        need("torch", "transformers", extra="rerank")
        model = load_classifier(
            (self.base or self.checkpoint).folder,
            dtype=self.settings.dtype,
            trust_remote_code=self.conditions.trust_remote_code,
            labels=1 if self.base else None,
        )
        if self.base:
            need("peft", extra="rankllama")
            from peft import PeftModel

            with named_failures(self.checkpoint.folder):
                model = PeftModel.from_pretrained(model, str(self.checkpoint.folder))
                model = model.merge_and_unload()
        if model.config.pad_token_id is None:
            model.config.pad_token_id = self._tokenizer.pad_token_id
        return model.to(chosen_device(self.conditions.device)).eval()

    @cached_property
    def _tokenizer(self) -> Any:
        folder = (self.base or self.checkpoint).folder
        tokenizer = load_tokenizer(folder, trust_remote_code=self.conditions.trust_remote_code)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
        tokenizer.padding_side = "right"
        return tokenizer

    @cached_property
    def _limit(self) -> int:
        """Tokens per pair: as set, else the tokeniser's own limit within the model's positions."""
        if self.settings.max_length:
            return self.settings.max_length
        positions = getattr(self._model.config, "max_position_embeddings", None) or 512
        return min(int(self._tokenizer.model_max_length), int(positions))

    def _inputs(self, pairs: Sequence[Pair]) -> TokenInputs:
        encoded = self._tokenizer(
            [f"{self.settings.query_prefix}{query}" for query, _ in pairs],
            [f"{self.settings.document_prefix}{document}" for _, document in pairs],
            truncation="longest_first",
            max_length=self._limit,
            return_attention_mask=False,
        )
        return TokenInputs.of(self._tokenizer, encoded, limit=self._limit)

    def _forward(self, inputs: TokenInputs, rows: Rows) -> NDArray[np.float32]:
        import torch

        features = inputs.features(rows)
        device = self._model.device
        tensors = {name: torch.from_numpy(part).to(device) for name, part in features.items()}
        with torch.inference_mode():
            logits = self._model(**tensors).logits.float().cpu().numpy()
        return self._chosen(logits)

    def _chosen(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The one logit, the second of two, or the one that `logit` names."""
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
