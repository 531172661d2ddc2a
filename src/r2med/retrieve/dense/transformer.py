"""Encoders on transformers checkpoints: tokenise, run the backbone, pool, project, normalise.

Sentence-transformers checkpoints of the usual modules run here too, with the same result and
without importing that library; all others are left to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.errors import MissingError
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.backbone import Backbone
from r2med.retrieve.dense.checkpoint import Checkpoint, locate
from r2med.retrieve.dense.encoder import Encoder, Inputs
from r2med.retrieve.dense.form import Form
from r2med.retrieve.dense.loading import load_tokenizer, refuse_foreign_code
from r2med.retrieve.dense.recipe import Recipe, read_recipe
from r2med.retrieve.dense.settings import Settings
from r2med.retrieve.dense.tokens import TokenInputs, tokenise

#: A tokeniser without a limit says so with a huge number.
_NO_LIMIT = 1_000_000
#: What sentence-transformers does with a checkpoint that is left to it.
_FIXED: Mapping[str, tuple[object, ...]] = {
    "pooling": ("model",),
    "attention": ("model",),
    "append_eos": (False,),
    "document_pair": (False,),
    "autocast": (False,),
}


class TransformerEncoder:
    """A transformer and a recipe; loaded when the first text is to be encoded."""

    def __init__(
        self, checkpoint: Checkpoint, recipe: Recipe, settings: Settings, conditions: Conditions
    ) -> None:
        self.checkpoint = checkpoint
        self.recipe = recipe
        self.settings = settings
        self.conditions = conditions
        self.loaded = False

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The checkpoint's content, the recipe and the arithmetic."""
        recipe = asdict(self.recipe)
        del recipe["max_length"], recipe["backbone"]
        return {
            "library": "transformers",
            "checkpoint": self.checkpoint.fingerprint(),
            "recipe": json.loads(json.dumps(recipe)),
            "limit": self.recipe.max_length,
            "dtype": self.settings.dtype,
            "autocast": self.settings.autocast,
        }

    def inputs(self, texts: Sequence[str], form: Form) -> TokenInputs:
        """Token ids, with the form's limit or the model's own."""
        limit = form.max_length or self._limit
        eos = self.recipe.append_eos
        return tokenise(self._tokenizer, texts, form, limit=limit, append_eos=eos)

    def encode(self, inputs: Inputs, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Vectors of a batch; an input without any token is the zero vector."""
        assert isinstance(inputs, TokenInputs)
        from r2med.retrieve.dense.pooling import vectors_of

        features = inputs.features(rows)
        skipped = 0 if self.recipe.pool_instruction else inputs.instruction_tokens
        hidden = self._backbone.hidden(features)
        mask = features["attention_mask"]
        vectors = vectors_of(hidden, mask, self.recipe, skipped, self._projections)
        vectors[inputs.lengths[rows] == 0] = 0
        return vectors

    def facts(self) -> Mapping[str, object]:
        """The checkpoint, and the device and precision where the model was needed."""
        told = {"checkpoint": self.checkpoint.name, "origin": self.checkpoint.origin}
        return {**told, **(self._backbone.facts() if self.loaded else {})}

    @property
    def _folder(self) -> Path:
        return self.checkpoint.folder / self.recipe.backbone

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self._folder, self.conditions)

    @cached_property
    def _limit(self) -> int:
        """The checkpoint's own limit, else the tokeniser's; 0 where nobody sets one."""
        longest = int(self._tokenizer.model_max_length)
        return self.recipe.max_length or (longest if longest < _NO_LIMIT else 0)

    @cached_property
    def _backbone(self) -> Backbone:
        self.loaded = True
        bidirectional = self.recipe.bidirectional
        return Backbone(self._folder, self.settings, self.conditions, bidirectional=bidirectional)

    @cached_property
    def _projections(self) -> Sequence[Any]:
        from r2med.retrieve.dense.pooling import load_projection

        folder = self.checkpoint.folder
        return [load_projection(folder / step.folder, step) for step in self.recipe.projections]


def build(checkpoint: str, settings: Settings, conditions: Conditions) -> Encoder:
    """The encoder of a checkpoint, by this package's recipe or by the checkpoint's own library."""
    found = locate(checkpoint, revision=settings.revision)
    need_torch()
    if settings.library != "transformers":
        refuse_foreign_code(found.folder, allowed=conditions.trust_remote_code)
    recipe = read_recipe(found, settings)
    if recipe is not None:
        return TransformerEncoder(found, recipe, settings, conditions)
    settings.refuse_without_effect(f"{checkpoint}, a checkpoint with modules of its own", _FIXED)
    from r2med.retrieve.dense.library import sentence_encoder

    return sentence_encoder(
        found,
        conditions,
        dtype=settings.dtype,
        normalize=settings.normalize,
        pool_instruction=settings.pool_instruction,
    )


def need_torch() -> None:
    """Say what to install where the heavy libraries are not."""
    from importlib.util import find_spec

    absent = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if absent:
        raise MissingError(
            f"this encoder needs {' and '.join(absent)}: pip install 'r2med[dense]'.\n"
            "wordllama runs without them."
        )
