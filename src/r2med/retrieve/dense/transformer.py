"""Encoders on transformers checkpoints: tokenise, run the model, pool, project, normalise.

Sentence-transformers checkpoints of the usual modules run here too, with the same result and
without importing that library; all others are left to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from r2med.algorithms import versions
from r2med.errors import need
from r2med.execution.resources import Resources
from r2med.models.batching import Features, Rows, TokenInputs, truncations
from r2med.models.checkpoint import Checkpoint, LocalModel, locate, named_failures
from r2med.models.encoding import BatchEncoder, Form, Inputs
from r2med.retrieve.dense.retriever import Settings

if TYPE_CHECKING:
    import torch

Pooling = Literal["cls", "mean", "last"]

#: What sentence-transformers calls the poolings that run here, by name and by the older flags.
_POOLINGS: Mapping[str, Pooling] = {
    "cls": "cls",
    "mean": "mean",
    "lasttoken": "last",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
#: Settings of a transformer module that change more than its hidden states' length.
_UNUSUAL = ("do_lower_case", "query_expansion", "unpad_inputs", "query_length")
_ACTIVATIONS: Mapping[str, str] = {
    "torch.nn.modules.linear.Identity": "Identity",
    "torch.nn.modules.activation.Tanh": "Tanh",
}


def build(checkpoint: str, settings: Settings, resources: Resources) -> BatchEncoder:
    """The encoder of a checkpoint, by this package's recipe or by the checkpoint's own library."""
    located = locate(checkpoint, revision=settings.revision)
    need("torch", "transformers", extra="dense")
    if settings.library != "transformers":
        located.refuse_foreign_code(trusted=resources.options.trust_remote_code)
    recipe = read_recipe(located, settings)
    if recipe is not None:
        return TransformerEncoder(
            located, settings.dtype, resources.options, recipe, settings.autocast
        )
    from r2med.retrieve.dense.library_encoders import sentence_encoder

    return sentence_encoder(located, settings, resources)


@dataclass(frozen=True)
class Projection:
    """A linear layer after pooling."""

    folder: str
    activation: str


@dataclass(frozen=True)
class Steps:
    """Steps from tokens to a vector that this package does itself."""

    pooling: Pooling
    pool_instruction: bool = True
    bidirectional: bool = False
    append_eos: bool = False
    normalize: bool = False
    max_length: int = 0
    """The checkpoint's own limit; 0 where it states none."""
    backbone: str = "."
    """The folder of the transformer within the checkpoint."""
    projections: tuple[Projection, ...] = ()


@dataclass(eq=False)
class TransformerEncoder(LocalModel):
    """A transformer and a recipe; loaded when the first text is to be encoded."""

    recipe: Steps
    autocast: bool = False

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The checkpoint's content, the recipe and the arithmetic."""
        recipe = asdict(self.recipe)
        limit, _ = recipe.pop("max_length"), recipe.pop("backbone")
        return {
            "library": "transformers",
            "algorithms": versions("transformer-encoding"),
            "checkpoint": self.checkpoint.fingerprint(),
            "recipe": json.loads(json.dumps(recipe)),
            "limit": limit,
            "dtype": self.dtype,
            "autocast": self.autocast,
        }

    def inputs(self, texts: Sequence[str], form: Form) -> Inputs:
        """Token ids, cut at the form's limit, else the checkpoint's own, else what it can read."""
        limit = form.max_length or self.recipe.max_length or self.longest
        append_eos = self.recipe.append_eos
        return tokenise(self.tokenizer, texts, form, limit=limit, append_eos=append_eos)

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Pool, project and normalise a batch; an input without any token is the zero vector.

        Sums are taken in float32 whatever the model's precision.
        """
        import torch

        assert isinstance(inputs, TokenInputs)
        features, recipe = inputs.features(rows), self.recipe
        skipped = 0 if recipe.pool_instruction else inputs.instruction_tokens
        with torch.inference_mode():
            hidden = self.hidden(features)
            mask = torch.from_numpy(features["attention_mask"]).to(hidden.device)
            pooled = _pooled(hidden, mask, recipe.pooling, skipped)
            for layer in self._projections:
                pooled = layer.to(pooled.device)(pooled)
            if recipe.normalize:
                pooled = torch.nn.functional.normalize(pooled, dim=-1)
            vectors: NDArray[np.float32] = pooled.cpu().numpy().copy()
        vectors[inputs.tokens[rows] == 0] = 0
        return vectors

    @property
    def folder(self) -> Path:
        """That of the transformer among the checkpoint's modules."""
        return self.checkpoint.folder / self.recipe.backbone

    def hidden(self, features: Features) -> torch.Tensor:
        """The last hidden states of one batch, (texts, tokens, width), in float32."""
        import torch

        model, options = self.model, dict[str, torch.Tensor]()
        if self.recipe.bidirectional:
            # An additive mask that hides padding alone takes the place of the causal one.
            mask = torch.from_numpy(features["attention_mask"]).to(model.device)
            padding = (1 - mask[:, None, None, :]).to(model.dtype) * torch.finfo(model.dtype).min
            options["attention_mask"] = padding.expand(-1, 1, mask.shape[1], -1)
        mixed = self.autocast and model.device.type == "cuda"
        with torch.autocast("cuda", torch.float16) if mixed else nullcontext():
            states: torch.Tensor = self.run(features, **options).last_hidden_state
        return states.float()

    @cached_property
    def _projections(self) -> Sequence[Any]:
        """The layers and activations of sentence-transformers modules in folders of their own."""
        import torch

        layers = []
        for step in self.recipe.projections:
            folder = self.checkpoint.folder / step.folder
            file = folder / "model.safetensors"
            linear = load_linear(file if file.is_file() else folder / "pytorch_model.bin")
            activation = torch.nn.Tanh() if step.activation == "Tanh" else torch.nn.Identity()
            layers.append(torch.nn.Sequential(linear, activation).eval())
        return layers


def tokenise(
    tokenizer: Any, texts: Sequence[str], form: Form, *, limit: int, append_eos: bool = False
) -> TokenInputs:
    """Token ids as the model gets them: instruction, special tokens and truncation applied.

    `append_eos` ends every text with one end token, whether or not the tokeniser adds its own.
    """
    put = [form.instruction + text for text in texts] if form.instruction else list(texts)
    append_eos = append_eos and tokenizer("")["input_ids"][-1:] != [tokenizer.eos_token_id]
    limit = limit - append_eos if limit else 0
    cut: dict[str, Any] = {"truncation": bool(limit)} | ({"max_length": limit} if limit else {})
    pair = [[""] * len(put), put] if form.pair else [put]
    encoded = tokenizer(*pair, return_attention_mask=False, **cut) if put else {"input_ids": []}
    rows, segments = encoded["input_ids"], encoded.get("token_type_ids")
    truncated = truncations(encoded, limit)
    if append_eos:
        rows = [[*ids, tokenizer.eos_token_id] for ids in rows]
        segments = [[*row, 0] for row in segments] if segments else None
    # The instruction's tokens at the start of an input, the opening special one included.
    opening = tokenizer(form.instruction)["input_ids"] if form.instruction else []
    closing = {tokenizer.eos_token_id, tokenizer.sep_token_id} - {None}
    skipped = len(opening) - (opening[-1] in closing if opening else 0)
    return TokenInputs(tokenizer, rows, truncated, segments=segments, instruction_tokens=skipped)


def _pooled(
    hidden: torch.Tensor, mask: torch.Tensor, pooling: Pooling, skipped: int
) -> torch.Tensor:
    """One vector per text; `skipped` tokens at the start do not enter a mean."""
    import torch

    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "last":
        last = (mask.sum(dim=1) - 1).clamp(min=0)
        return hidden[torch.arange(len(hidden), device=hidden.device), last]
    counted = mask.clone()
    counted[:, :skipped] = 0
    weights = counted.unsqueeze(-1).float()
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)


def load_linear(file: Path) -> torch.nn.Linear:
    """A linear layer from safetensors, or from a torch file read as plain tensors only."""
    import torch

    with named_failures(file.parent):
        if file.suffix == ".safetensors":
            need("safetensors", extra="dense")
            from safetensors.torch import load_file

            weights = load_file(file)
        else:
            weights = torch.load(file, map_location="cpu", weights_only=True)
        parts = {name.removeprefix("linear."): part.float() for name, part in weights.items()}
        rows, columns = parts["weight"].shape
        layer = torch.nn.Linear(columns, rows, bias="bias" in parts)
        layer.load_state_dict(parts)
    return layer.eval()


def read_recipe(checkpoint: Checkpoint, settings: Settings) -> Steps | None:
    """The recipe, or None when the checkpoint has modules that only its own library knows."""
    if settings.library == "transformers" or not checkpoint.file("modules.json").is_file():
        return Steps(
            pooling="mean" if settings.pooling == "model" else settings.pooling,
            pool_instruction=settings.pool_instruction,
            bidirectional=settings.attention == "bidirectional",
            append_eos=settings.append_eos,
            normalize=settings.normalize,
        )
    # Modules of the library are known by their last name, those of others keep the whole.
    modules = [
        (re.sub(r"^sentence_transformers\.(.*\.)?", "", str(row["type"])), str(row["path"]))
        for row in checkpoint.json("modules.json")
    ]
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or not set(kinds[2:]) <= {"Dense", "Normalize"}:
        return None
    if "Normalize" in kinds[:-1] or settings.attention != "model":
        return None
    own = checkpoint.json(f"{modules[0][1] or '.'}/sentence_bert_config.json") or {}
    pooling = checkpoint.json(f"{modules[1][1]}/config.json") or {}
    named = pooling.get("pooling_mode")
    flags = [name for name, on in pooling.items() if name.startswith("pooling_mode_") and on]
    modes = ([named] if isinstance(named, str) else list(named or [])) or flags
    mode = _POOLINGS.get(modes[0]) if len(modes) == 1 else None
    projections = [_projection(checkpoint, path) for kind, path in modules if kind == "Dense"]
    # The transformer itself must do no more than turn text into the last hidden states.
    plain = own.get("transformer_task", "feature-extraction") == "feature-extraction"
    if mode is None or None in projections or not plain or any(map(own.get, _UNUSUAL)):
        return None
    return Steps(
        pooling=mode if settings.pooling == "model" else settings.pooling,
        pool_instruction=settings.pool_instruction and bool(pooling.get("include_prompt", True)),
        append_eos=settings.append_eos,
        normalize=settings.normalize or "Normalize" in kinds,
        max_length=int(own.get("max_seq_length") or 0),
        backbone=modules[0][1] or ".",
        projections=tuple(cast("list[Projection]", projections)),
    )


def _projection(checkpoint: Checkpoint, path: str) -> Projection | None:
    """A layer that can be run here; None leaves it, and with it the checkpoint, to its library."""
    config = checkpoint.json(f"{path}/config.json") or {}
    plain = set(config) <= {"in_features", "out_features", "bias", "activation_function"}
    activation = _ACTIVATIONS.get(str(config.get("activation_function")))
    return Projection(path, activation) if plain and activation else None
