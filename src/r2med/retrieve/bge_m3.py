"""The two further heads of bge-m3: a weight for every token, and a vector for every token.

No library that is at hand runs them, and they are two linear layers on the model's hidden states;
the computation is that of its authors' FlagEmbedding. The dense vectors are the entry `bge-m3`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from r2med.errors import MissingError
from r2med.models.batching import Rows, TokenInputs
from r2med.models.checkpoint import Checkpoint
from r2med.models.loading import named_failures
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.embed import Inputs
from r2med.retrieve.dense.settings import Precision
from r2med.retrieve.dense.transformer import Recipe, TransformerEncoder
from r2med.retrieve.multi import packed_tokens, packed_words

if TYPE_CHECKING:
    import torch


class _HeadEncoder(TransformerEncoder):
    """The model's hidden states, read by a linear layer in a file of the checkpoint."""

    layer = ""

    def __init__(self, checkpoint: Checkpoint, dtype: Precision, conditions: Conditions) -> None:
        super().__init__(checkpoint, Recipe("cls"), conditions, dtype=dtype)

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The checkpoint's content, which head reads it, and the arithmetic."""
        return {**super().identity, "head": self.layer}

    @cached_property
    def _linear(self) -> Any:
        return _load_linear(self.checkpoint.folder / self.layer).to(self._device)

    def _read(self, inputs: TokenInputs, rows: Rows) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """What the layer makes of each token, and the tokens."""
        import torch

        features = inputs.features(rows)
        with torch.inference_mode():
            read: torch.Tensor = self._linear(self._hidden(features).float())
        return read.cpu().numpy(), features


class TokenWeights(_HeadEncoder):
    """Sparse vectors over the vocabulary: a token weighs as much as its heaviest occurrence."""

    layer = "sparse_linear.pt"

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Words and weights of a batch; special tokens weigh nothing."""
        assert isinstance(inputs, TokenInputs)
        read, features = self._read(inputs, rows)
        special = set(self._tokenizer.all_special_ids)
        weighed: list[dict[int, float]] = []
        for ids, mask, weights in zip(
            features["input_ids"], features["attention_mask"], read[:, :, 0], strict=True
        ):
            heaviest: dict[int, float] = {}
            for token, weight in zip(ids[mask > 0], weights[mask > 0], strict=True):
                if weight > heaviest.get(int(token), 0.0) and token not in special:
                    heaviest[int(token)] = float(weight)
            weighed.append(heaviest)
        counts = np.cumsum([0, *map(len, weighed)])
        words = np.array([word for row in weighed for word in row], dtype=np.int32)
        values = np.array([value for row in weighed for value in row.values()], dtype=np.float32)
        width = len(self._tokenizer)
        return packed_words(sp.csr_matrix((values, words, counts), shape=(len(weighed), width)))


class TokenVectors(_HeadEncoder):
    """One vector of length 1 per token after the first."""

    layer = "colbert_linear.pt"

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """The vectors of a batch, the opening token's left out."""
        assert isinstance(inputs, TokenInputs)
        read, features = self._read(inputs, rows)
        norms = np.maximum(np.linalg.norm(read, axis=2, keepdims=True), 1e-12)
        lengths = features["attention_mask"].sum(axis=1)
        units = zip(read / norms, lengths, strict=True)
        return packed_tokens([vectors[1 : int(length)] for vectors, length in units])


def _load_linear(file: Path) -> Any:
    """A linear layer from a torch file, read as plain tensors only."""
    import torch

    if not file.is_file():
        raise MissingError(f"{file}: missing, so {file.parent.name} has no such head of bge-m3.")
    with named_failures(file.parent):
        weights = torch.load(file, map_location="cpu", weights_only=True)
        rows, columns = weights["weight"].shape
        layer = torch.nn.Linear(columns, rows)
        layer.load_state_dict({name: value.float() for name, value in weights.items()})
    return layer.eval()
