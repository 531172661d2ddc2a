"""Static encoders: a text is the mean of its tokens' vectors; quick, and without torch.

WordLlama's shipped weights are read directly: its library does the same sum, but importing it
costs more than encoding a small task, and sets up logging for the whole process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, MissingError
from r2med.models.batching import Rows
from r2med.models.checkpoint import Checkpoint, locate
from r2med.models.loading import named_failures, need
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.embed import Encoder, Form, Inputs, unit
from r2med.retrieve.dense.settings import Settings

#: What a mean of token vectors is, whatever an entry says.
_FIXED: Mapping[str, tuple[object, ...]] = {
    "pooling": ("mean", "model"),
    "pool_instruction": (True,),
    "attention": ("model",),
    "append_eos": (False,),
    "document_pair": (False,),
    "dtype": ("float32", "auto"),
    "autocast": (False,),
}


@dataclass(frozen=True, eq=False)
class StaticInputs:
    """Token ids one after the other, with the boundaries of the texts."""

    ids: NDArray[np.int64]
    offsets: NDArray[np.int64]
    truncated: NDArray[np.bool_]
    texts: Sequence[str]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each text."""
        return np.diff(self.offsets)

    @property
    def tokens(self) -> NDArray[np.int64]:
        """The same: every token is known."""
        return self.lengths

    def seen(self, row: int) -> str:
        """The text itself: nothing is added to it."""
        return self.texts[row]


class StaticEncoder:
    """A table of token vectors and its tokeniser."""

    def __init__(self, checkpoint: Checkpoint, *, normalize: bool) -> None:
        self.checkpoint = checkpoint
        self.normalize = normalize

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The files and what is done with them."""
        return {
            "library": "static",
            "checkpoint": self.checkpoint.fingerprint(),
            "normalize": self.normalize,
        }

    def inputs(self, texts: Sequence[str], form: Form) -> StaticInputs:
        """Token ids without special tokens; unknown tokens count, as in the original library."""
        put = [form.instruction + text for text in texts] if form.instruction else list(texts)
        encoded = [item.ids for item in self._tokenizer.encode_batch(put, add_special_tokens=False)]
        most = form.max_length or max(map(len, encoded), default=0)
        lengths = [min(len(ids), most) for ids in encoded]
        flat = [token for ids in encoded for token in ids[:most]]
        return StaticInputs(
            ids=np.minimum(np.array(flat, dtype=np.int64), len(self._table) - 1),
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            truncated=np.array([len(ids) > most for ids in encoded], dtype=np.bool_),
            texts=put,
        )

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Means of token vectors; a text without tokens is the zero vector."""
        assert isinstance(inputs, StaticInputs)
        lengths = inputs.lengths[rows]
        vectors = np.zeros((len(rows), self._table.shape[1]), dtype=np.float32)
        spans = [inputs.ids[inputs.offsets[row] : inputs.offsets[row + 1]] for row in rows]
        filled = np.flatnonzero(lengths)
        if len(filled):
            starts = np.concatenate([[0], np.cumsum(lengths[filled])[:-1]])
            sums = np.add.reduceat(self._table[np.concatenate(spans)], starts, axis=0)
            vectors[filled] = sums / lengths[filled, None].astype(np.float32)
        return unit(vectors) if self.normalize else vectors

    def facts(self) -> Mapping[str, object]:
        """Where the weights came from."""
        return self.checkpoint.facts()

    @cached_property
    def _tokenizer(self) -> Any:
        need("tokenizers", extra="light")
        from tokenizers import Tokenizer

        vocabulary = _needed(self.checkpoint, "tokenizer.json")
        with named_failures(vocabulary):
            tokenizer = Tokenizer.from_file(str(vocabulary))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    @cached_property
    def _table(self) -> NDArray[np.float32]:
        from safetensors.numpy import load_file

        weights = _needed(self.checkpoint, "model.safetensors")
        with named_failures(weights):
            tables = [table for table in load_file(weights).values() if table.ndim == 2]
        if len(tables) != 1:
            raise DataError(
                f"{weights}: holds {len(tables)} matrices, expected one, a row for each token."
            )
        return np.ascontiguousarray(tables[0], dtype=np.float32)


def build(checkpoint: str, settings: Settings, conditions: Conditions) -> Encoder:
    """A static encoder as an entry describes it."""
    settings.refuse_without_effect("a static encoder", _FIXED)
    located = locate(checkpoint, revision=settings.revision)
    return StaticEncoder(located, normalize=settings.normalize)


def _needed(checkpoint: Checkpoint, usual: str) -> Any:
    path = checkpoint.file(usual)
    if not path.is_file():
        raise MissingError(
            f"{path}: missing. A static model has tokenizer.json and model.safetensors."
        )
    return path
