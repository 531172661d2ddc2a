"""What lies between a model's hidden states and its vector, read from an entry or a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from r2med.retrieve.dense.checkpoint import Checkpoint
from r2med.retrieve.dense.settings import Settings

Pooling = Literal["cls", "mean", "last"]

_MODES: Mapping[str, Pooling] = {"cls": "cls", "mean": "mean", "lasttoken": "last"}
_FLAGS: Mapping[str, str] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
_ACTIVATIONS = {"Identity", "Tanh"}


@dataclass(frozen=True)
class Projection:
    """A linear layer after pooling."""

    folder: str
    activation: str


@dataclass(frozen=True)
class Recipe:
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


def is_sentence_transformer(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint lists modules of its own."""
    return checkpoint.file("modules.json").is_file()


def read_recipe(checkpoint: Checkpoint, settings: Settings) -> Recipe | None:
    """The recipe, or None when the checkpoint has modules that only its own library knows."""
    if settings.library == "transformers" or not is_sentence_transformer(checkpoint):
        pooling = "mean" if settings.pooling == "model" else settings.pooling
        return Recipe(
            pooling=pooling,
            pool_instruction=settings.pool_instruction,
            bidirectional=settings.attention == "bidirectional",
            append_eos=settings.append_eos,
            normalize=settings.normalize,
        )
    return _from_modules(checkpoint, settings)


def _from_modules(checkpoint: Checkpoint, settings: Settings) -> Recipe | None:
    modules = [(_kind(row), str(row["path"])) for row in checkpoint.json("modules.json")]
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or not set(kinds[2:]) <= {"Dense", "Normalize"}:
        return None
    if "Normalize" in kinds[:-1] or settings.attention != "model":
        return None
    own = checkpoint.json(f"{modules[0][1] or '.'}/sentence_bert_config.json") or {}
    pooling = checkpoint.json(f"{modules[1][1]}/config.json") or {}
    mode = _mode(pooling)
    projections = [_projection(checkpoint, path) for kind, path in modules if kind == "Dense"]
    if own.get("do_lower_case") or mode is None or None in projections:
        return None
    if not set(own) <= {"max_seq_length", "do_lower_case"} and _is_unusual(own):
        return None
    return Recipe(
        pooling=mode if settings.pooling == "model" else settings.pooling,
        pool_instruction=settings.pool_instruction and bool(pooling.get("include_prompt", True)),
        append_eos=settings.append_eos,
        normalize=settings.normalize or "Normalize" in kinds,
        max_length=int(own.get("max_seq_length") or 0),
        backbone=modules[0][1] or ".",
        projections=tuple(cast("list[Projection]", projections)),
    )


def _kind(row: Mapping[str, Any]) -> str:
    """The library's own name of a module; one of another's keeps its whole name."""
    name = str(row["type"])
    return name.rpartition(".")[2] if name.startswith("sentence_transformers.") else name


def _mode(pooling: Mapping[str, Any]) -> Pooling | None:
    named = pooling.get("pooling_mode")
    chosen = [named] if isinstance(named, str) else list(named or [])
    chosen = chosen or [mode for flag, mode in _FLAGS.items() if pooling.get(flag)]
    return _MODES.get(chosen[0]) if len(chosen) == 1 else None


def _projection(checkpoint: Checkpoint, path: str) -> Projection | None:
    told = checkpoint.json(f"{path}/config.json") or {}
    activation = str(told.get("activation_function", "Identity")).rpartition(".")[2]
    plain = set(told) <= {"in_features", "out_features", "bias", "activation_function"}
    return Projection(path, activation) if plain and activation in _ACTIVATIONS else None


def _is_unusual(own: Mapping[str, Any]) -> bool:
    """Whether a transformer module does more than turn text into the last hidden states."""
    return own.get("transformer_task", "feature-extraction") != "feature-extraction" or any(
        own.get(key) for key in ("query_expansion", "unpad_inputs", "query_length")
    )
