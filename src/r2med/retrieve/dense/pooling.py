"""Pooling and projection in torch: from a batch's hidden states to its vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from r2med.errors import MissingError
from r2med.retrieve.dense.loading import failures_told
from r2med.retrieve.dense.recipe import Projection, Recipe


@torch.inference_mode()
def vectors_of(
    hidden: torch.Tensor,
    mask: NDArray[np.int64],
    recipe: Recipe,
    skipped: int,
    projections: Sequence[torch.nn.Module],
) -> NDArray[np.float32]:
    """Pool, project and normalise as the recipe says; `skipped` tokens at the start do not count.

    Sums are taken in float32 whatever the model's precision.
    """
    attended = torch.from_numpy(mask).to(hidden.device)
    pooled = _pooled(hidden.float(), attended, recipe, skipped)
    for layer in projections:
        pooled = layer.to(pooled.device)(pooled)
    if recipe.normalize:
        pooled = torch.nn.functional.normalize(pooled, dim=-1)
    vectors: NDArray[np.float32] = pooled.cpu().numpy().copy()
    return vectors


def _pooled(hidden: torch.Tensor, mask: torch.Tensor, recipe: Recipe, skipped: int) -> torch.Tensor:
    if recipe.pooling == "cls":
        return hidden[:, 0]
    if recipe.pooling == "last":
        last = (mask.sum(dim=1) - 1).clamp(min=0)
        return hidden[torch.arange(len(hidden), device=hidden.device), last]
    counted = mask.clone()
    counted[:, :skipped] = 0
    weights = counted.unsqueeze(-1).float()
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)


def load_projection(folder: Path, step: Projection) -> torch.nn.Module:
    """A linear layer with its activation, from the folder of a sentence-transformers module."""
    with failures_told(folder):
        weights = _weights(folder)
    matrix = weights["linear.weight"]
    layer = torch.nn.Linear(matrix.shape[1], matrix.shape[0], bias="linear.bias" in weights)
    layer.load_state_dict({name.removeprefix("linear."): w.float() for name, w in weights.items()})
    activation = torch.nn.Tanh() if step.activation == "Tanh" else torch.nn.Identity()
    return torch.nn.Sequential(layer, activation).eval()


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    """From safetensors, or from a torch file read as plain tensors only."""
    safe, plain = folder / "model.safetensors", folder / "pytorch_model.bin"
    if safe.is_file():
        from safetensors.torch import load_file

        tensors: dict[str, torch.Tensor] = load_file(safe)
        return tensors
    if not plain.is_file():
        raise MissingError(f"{folder}: neither model.safetensors nor pytorch_model.bin is there.")
    loaded: dict[str, torch.Tensor] = torch.load(plain, map_location="cpu", weights_only=True)
    return loaded
