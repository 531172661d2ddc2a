"""Local models that read query and document together: files, loading, batches of like length.

What a model is (a classifier, a language model that says yes or no) is a subclass: how it is
loaded, which tokens it reads for a pair, and which number of its output is the score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from r2med.errors import UsageError
from r2med.models.batching import Batches, Rows, TokenInputs
from r2med.models.checkpoint import Checkpoint, locate
from r2med.models.loading import chosen_device, load_tokenizer, named_failures, need
from r2med.models.vectors import Computed
from r2med.rerank.scores import Pair
from r2med.retrieve.conditions import Conditions
from r2med.settings import identity_of, setting


@dataclass(frozen=True, kw_only=True)
class PairModelSettings:
    """What entries of all such models say; rerankers.toml documents each field."""

    dtype: Literal["auto", "float32", "float16", "bfloat16"]
    checkpoint: str = setting(identity="content")
    base: str = setting(identity="content")
    max_length: int = setting(least=0)


class PairModel:
    """A model and its tokeniser, as a scorer of pairs."""

    kind: ClassVar[str]
    """Names the architecture in the identity."""

    def __init__(self, name: str, settings: PairModelSettings, conditions: Conditions) -> None:
        if not settings.checkpoint:
            raise UsageError(f"{name}: no model is given. Name one as in ce:PATH_OR_HUB_NAME.")
        self.conditions = conditions
        self._settings = settings
        self._batches = Batches(conditions.batch_tokens, conditions.tell)
        self._first_seen: str | None = None

    def load(self, folder: Path) -> Any:
        """The whole model in a folder; an adapter's base, where the checkpoint is an adapter."""
        raise NotImplementedError

    def inputs(self, pairs: Sequence[Pair]) -> TokenInputs:
        """What the model reads for each pair."""
        raise NotImplementedError

    def forward(self, inputs: TokenInputs, rows: Rows) -> NDArray[np.float32]:
        """The scores of some inputs, computed as one batch."""
        raise NotImplementedError

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The model's files, or those of the adapter."""
        return locate(self._settings.checkpoint)

    @cached_property
    def base(self) -> Checkpoint | None:
        """The model that an adapter changes; None when the checkpoint is a whole model."""
        adapter = self.checkpoint.json("adapter_config.json")
        if adapter is None:
            return None
        named = adapter.get("base_model_name_or_path")
        return locate(self._settings.base or str(named or ""), option="base")

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The files' content and how they are used."""
        return {
            "reranker": self.kind,
            "checkpoint": self.checkpoint.fingerprint(),
            "base": self.base.fingerprint() if self.base else None,
            **identity_of(self._settings),
        }

    def score(self, pairs: Sequence[Pair]) -> Iterator[Computed]:
        """Batches of like length, longest first."""
        inputs = self.inputs(pairs)
        if self._first_seen is None and pairs:
            self._first_seen = inputs.seen(0)
        batches = self._batches.run(
            inputs.lengths,
            lambda rows: self.forward(inputs, rows),
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
            facts["device"] = str(self.model.device)
            facts["dtype"] = str(self.model.dtype).removeprefix("torch.")
            facts["first"] = self._first_seen
        return facts

    @cached_property
    def model(self) -> Any:
        """The model in evaluation mode, on its device; an adapter is merged into its base."""
        need("torch", "transformers", extra="rerank")
        model = self.load((self.base or self.checkpoint).folder)
        if self.base:
            need("peft", extra="rankllama")
            from peft import PeftModel

            with named_failures(self.checkpoint.folder):
                model = PeftModel.from_pretrained(model, str(self.checkpoint.folder))
                model = model.merge_and_unload()
        if model.config.pad_token_id is None:
            model.config.pad_token_id = self.tokenizer.pad_token_id
        return model.to(chosen_device(self.conditions.device)).eval()

    @cached_property
    def tokenizer(self) -> Any:
        """The tokeniser of the whole model."""
        folder = (self.base or self.checkpoint).folder
        tokenizer = load_tokenizer(folder, trust_remote_code=self.conditions.trust_remote_code)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
        tokenizer.padding_side = "right"
        return tokenizer

    @cached_property
    def limit(self) -> int:
        """Tokens per pair: as set, else the tokeniser's own limit within the model's positions."""
        if self._settings.max_length:
            return self._settings.max_length
        positions = getattr(self.model.config, "max_position_embeddings", None) or 512
        return min(int(self.tokenizer.model_max_length), int(positions))

    def logits(self, features: Mapping[str, NDArray[np.int64]], **options: Any) -> Any:
        """What the model gives for a batch, in float32 on the processor."""
        import torch

        device = self.model.device
        tensors = {name: torch.from_numpy(part).to(device) for name, part in features.items()}
        with torch.inference_mode():
            return self.model(**tensors, **options).logits.float().cpu().numpy()
