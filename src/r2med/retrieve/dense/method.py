"""Models that bring their own `encode(texts, instruction=..., max_length=...)` as remote code.

NV-Embed is the published one: its latent attention exists only in the checkpoint's own code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, UsageError
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.backbone import chosen_device, load_model
from r2med.retrieve.dense.checkpoint import Checkpoint, locate
from r2med.retrieve.dense.encoder import Encoder, Inputs
from r2med.retrieve.dense.form import Form
from r2med.retrieve.dense.library import CountedInputs
from r2med.retrieve.dense.loading import load_tokenizer
from r2med.retrieve.dense.settings import Settings
from r2med.retrieve.dense.tokens import tokenise
from r2med.retrieve.dense.transformer import need_torch

#: What is left to the checkpoint's own code.
_FIXED: Mapping[str, tuple[object, ...]] = {
    "pooling": ("model",),
    "pool_instruction": (True,),
    "attention": ("model",),
    "append_eos": (False,),
    "document_pair": (False,),
    "autocast": (False,),
}


class MethodEncoder:
    """A checkpoint's own `encode`; instruction and length are handed over, not applied here."""

    def __init__(self, checkpoint: Checkpoint, settings: Settings, conditions: Conditions) -> None:
        self.checkpoint = checkpoint
        self.settings = settings
        self.conditions = conditions

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The checkpoint with its code, and the arithmetic."""
        return {
            "library": "method",
            "checkpoint": self.checkpoint.fingerprint(),
            "dtype": self.settings.dtype,
            "normalize": self.settings.normalize,
        }

    def inputs(self, texts: Sequence[str], form: Form) -> CountedInputs:
        """The texts, counted by the checkpoint's tokeniser; an end token of the model's is not."""
        limit = form.max_length
        counted = tokenise(self._tokenizer, texts, form, limit=limit, append_eos=False)
        return CountedInputs(texts, form, counted)

    def encode(self, inputs: Inputs, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """One batch, in float32 and normalised where the settings say so."""
        import torch

        assert isinstance(inputs, CountedInputs)
        chosen = [inputs.texts[row] for row in rows]
        told: dict[str, Any] = {"instruction": inputs.form.instruction}
        if inputs.form.max_length:
            told["max_length"] = inputs.form.max_length
        with torch.inference_mode():
            vectors = self._model.encode(chosen, **told).float()
            if self.settings.normalize:
                vectors = torch.nn.functional.normalize(vectors, dim=-1)
        encoded: NDArray[np.float32] = vectors.cpu().numpy()
        return encoded

    def facts(self) -> Mapping[str, object]:
        """The checkpoint, and the device where the model was needed."""
        told = {"checkpoint": self.checkpoint.name, "origin": self.checkpoint.origin}
        loaded = "_model" in vars(self)
        return {**told, **({"device": str(self._model.device)} if loaded else {})}

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self.checkpoint.folder, self.conditions)

    @cached_property
    def _model(self) -> Any:
        model = load_model(self.checkpoint.folder, self.settings.dtype, self.conditions)
        if not callable(getattr(model, "encode", None)):
            raise DataError(
                f"{self.checkpoint.name}: its code has no `encode` method. Without library=method "
                "a checkpoint's hidden states are pooled."
            )
        return model.to(chosen_device(self.conditions)).eval()


def build(checkpoint: str, settings: Settings, conditions: Conditions) -> Encoder:
    """The encoder of a checkpoint with code of its own, if the caller allows that code."""
    if not conditions.trust_remote_code:
        raise UsageError(
            f"{checkpoint} runs code that comes with the checkpoint. Read it, then allow it with "
            "--trust-remote-code."
        )
    settings.refuse_without_effect(f"{checkpoint}, a checkpoint with code of its own", _FIXED)
    found = locate(checkpoint, revision=settings.revision)
    need_torch()
    return MethodEncoder(found, settings, conditions)
