"""Encoders on transformers checkpoints: tokenise, run the model, pool, project, normalise.

Checkpoints of sentence-transformers with the usual modules run here too, with the same result and
without importing sentence-transformers. Checkpoints with other modules are run by that library.
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
from r2med.models.batching import Features, Rows, TokenInputs, find_truncated
from r2med.models.checkpoint import ADAPTER_CONFIG, Checkpoint, LocalModel, locate, name_failures
from r2med.models.encoding import BatchEncoder, Form, Inputs
from r2med.retrieve.dense.retriever import Settings

if TYPE_CHECKING:
    import torch

Pooling = Literal["cls", "mean", "last"]

#: Poolings by the names of sentence-transformers, and by its older flags.
_POOLINGS: Mapping[str, Pooling] = {
    "cls": "cls",
    "mean": "mean",
    "lasttoken": "last",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
#: Settings of a transformer module that only sentence-transformers supports.
_UNUSUAL = ("do_lower_case", "query_expansion", "unpad_inputs", "query_length")
_ACTIVATIONS: Mapping[str, str] = {
    "torch.nn.modules.linear.Identity": "Identity",
    "torch.nn.modules.activation.Tanh": "Tanh",
}


def build(checkpoint: str, settings: Settings, resources: Resources) -> BatchEncoder:
    """Return the encoder of a checkpoint, run here or by sentence-transformers."""
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
    """The steps from tokens to a vector, for checkpoints that run here."""

    pooling: Pooling
    pool_instruction: bool = True
    bidirectional: bool = False
    append_eos: bool = False
    normalize: bool = False
    max_length: int = 0
    """The highest number of tokens that the checkpoint states; 0 if it states none."""
    backbone: str = "."
    """The folder of the transformer within the checkpoint."""
    projections: tuple[Projection, ...] = ()


@dataclass(eq=False)
class TransformerEncoder(LocalModel):
    """A transformer and the steps from tokens to vectors; loaded when the first text is encoded."""

    recipe: Steps
    autocast: bool = False

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """Everything that decides the vectors: checkpoint content, recipe and precision."""
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
        """Return token ids, truncated at the limit of the form, the recipe or the model."""
        limit = form.max_length or self.recipe.max_length or self.max_tokens
        append_eos = self.recipe.append_eos
        return tokenise(self.tokenizer, texts, form, limit=limit, append_eos=append_eos)

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Pool, project and normalise a batch; a text without tokens has the zero vector.

        Sums are computed in float32 for any precision of the model.
        """
        import torch

        assert isinstance(inputs, TokenInputs)
        features, recipe = inputs.features(rows), self.recipe
        skipped = 0 if recipe.pool_instruction else inputs.instruction_tokens
        with torch.inference_mode():
            hidden = self.hidden_states(features)
            mask = torch.from_numpy(features["attention_mask"]).to(hidden.device)
            pooled = _pool(hidden, mask, recipe.pooling, skipped)
            for layer in self._projections:
                pooled = layer.to(pooled.device)(pooled)
            if recipe.normalize:
                pooled = torch.nn.functional.normalize(pooled, dim=-1)
            vectors: NDArray[np.float32] = pooled.cpu().numpy().copy()
        vectors[inputs.tokens[rows] == 0] = 0
        return vectors

    @property
    def folder(self) -> Path:
        """The folder of the transformer module of the checkpoint."""
        return self.checkpoint.folder / self.recipe.backbone

    def hidden_states(self, features: Features) -> torch.Tensor:
        """Return the last hidden states of a batch as float32, (texts, tokens, width)."""
        import torch

        model, options = self.model, dict[str, torch.Tensor]()
        if self.recipe.bidirectional:
            # Replace the causal mask by an additive mask that hides only padding.
            mask = torch.from_numpy(features["attention_mask"]).to(model.device)
            padding = (1 - mask[:, None, None, :]).to(model.dtype) * torch.finfo(model.dtype).min
            options["attention_mask"] = padding.expand(-1, 1, mask.shape[1], -1)
        uses_autocast = self.autocast and model.device.type == "cuda"
        with torch.autocast("cuda", torch.float16) if uses_autocast else nullcontext():
            states: torch.Tensor = self.run(features, **options).last_hidden_state
        return states.float()

    @cached_property
    def _projections(self) -> Sequence[Any]:
        """The layers and activations of the Dense modules of sentence-transformers."""
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
    """Return the token ids that the model reads: with instruction and special tokens, truncated.

    With `append_eos`, every text ends with one end token, whether or not the tokeniser adds one.
    """
    instructed = [form.instruction + text for text in texts]
    tokenizer_adds_eos = append_eos and tokenizer("")["input_ids"][-1:] == [tokenizer.eos_token_id]
    appends_eos = append_eos and not tokenizer_adds_eos
    if limit and appends_eos:
        limit -= 1
    options: dict[str, Any] = {"return_attention_mask": False, "truncation": limit > 0}
    if limit:
        options["max_length"] = limit
    encoded: Any = {"input_ids": []}
    if instructed and form.pair:
        encoded = tokenizer([""] * len(instructed), instructed, **options)
    elif instructed:
        encoded = tokenizer(instructed, **options)
    rows, segments = encoded["input_ids"], encoded.get("token_type_ids")
    truncated = find_truncated(encoded, limit)
    if appends_eos:
        rows = [[*ids, tokenizer.eos_token_id] for ids in rows]
        segments = [[*row, 0] for row in segments] if segments else None
    instruction_tokens = _count_instruction_tokens(tokenizer, form.instruction)
    return TokenInputs(
        tokenizer, rows, truncated, segments=segments, instruction_tokens=instruction_tokens
    )


def _count_instruction_tokens(tokenizer: Any, instruction: str) -> int:
    """Return how many tokens an instruction has at the start of a text, opening token included."""
    if not instruction:
        return 0
    ids = tokenizer(instruction)["input_ids"]
    ends_with_special = bool(ids) and ids[-1] in (tokenizer.eos_token_id, tokenizer.sep_token_id)
    return len(ids) - 1 if ends_with_special else len(ids)


def _pool(hidden: torch.Tensor, mask: torch.Tensor, pooling: Pooling, skipped: int) -> torch.Tensor:
    """Return one vector per text; the first `skipped` tokens are not part of a mean."""
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
    """Load a linear layer from safetensors, or from a torch file that contains only tensors."""
    import torch

    with name_failures(file.parent):
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
    """Return the steps from tokens to vectors; None if only sentence-transformers can run them."""
    if settings.library == "transformers" or not checkpoint.file("modules.json").is_file():
        return Steps(
            pooling="mean" if settings.pooling == "model" else settings.pooling,
            pool_instruction=settings.pool_instruction,
            bidirectional=settings.attention == "bidirectional",
            append_eos=settings.append_eos,
            normalize=settings.normalize,
        )
    # Classes of sentence-transformers are reduced to their last name, others keep the full name.
    modules = [
        (re.sub(r"^sentence_transformers\.(.*\.)?", "", str(row["type"])), str(row["path"]))
        for row in checkpoint.json("modules.json")
    ]
    names = [name for name, _ in modules]
    if names[:2] != ["Transformer", "Pooling"] or not set(names[2:]) <= {"Dense", "Normalize"}:
        return None
    if "Normalize" in names[:-1] or settings.attention != "model":
        return None
    backbone, pooling_folder = modules[0][1] or ".", modules[1][1]
    if checkpoint.file(f"{backbone}/{ADAPTER_CONFIG}").is_file():
        return None
    transformer = checkpoint.json(f"{backbone}/sentence_bert_config.json") or {}
    pooling_config = checkpoint.json(f"{pooling_folder}/config.json") or {}
    pooling = _read_pooling(pooling_config)
    projections = [_read_projection(checkpoint, path) for name, path in modules if name == "Dense"]
    # The transformer module must only turn text into the last hidden states.
    task = transformer.get("transformer_task", "feature-extraction")
    is_unusual = task != "feature-extraction" or any(transformer.get(name) for name in _UNUSUAL)
    if pooling is None or None in projections or is_unusual:
        return None
    includes_prompt = bool(pooling_config.get("include_prompt", True))
    return Steps(
        pooling=pooling if settings.pooling == "model" else settings.pooling,
        pool_instruction=settings.pool_instruction and includes_prompt,
        append_eos=settings.append_eos,
        normalize=settings.normalize or "Normalize" in names,
        max_length=int(transformer.get("max_seq_length") or 0),
        backbone=backbone,
        projections=tuple(cast("list[Projection]", projections)),
    )


def _read_pooling(config: Mapping[str, Any]) -> Pooling | None:
    """Return the pooling of a module; None if it has several poolings or an unsupported one."""
    value = config.get("pooling_mode")
    if isinstance(value, str):
        modes = [value]
    elif value:
        modes = list(value)
    else:
        modes = [name for name, on in config.items() if name.startswith("pooling_mode_") and on]
    return _POOLINGS.get(modes[0]) if len(modes) == 1 else None


def _read_projection(checkpoint: Checkpoint, path: str) -> Projection | None:
    """Return the layer of a Dense module; None if only sentence-transformers can run it."""
    config = checkpoint.json(f"{path}/config.json") or {}
    is_usual = set(config) <= {"in_features", "out_features", "bias", "activation_function"}
    activation = _ACTIVATIONS.get(str(config.get("activation_function")))
    return Projection(path, activation) if is_usual and activation else None
