"""Static encoders: the vector of a text is the mean of its tokens' vectors. They need no torch.

WordLlama's weights are read directly. Its library computes the same mean, but importing it takes
longer than encoding a small task, and configures logging for the whole process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.algorithms import versions
from r2med.errors import DataError, need
from r2med.execution.resources import Resources
from r2med.models.batching import Rows, TokenInputs
from r2med.models.checkpoint import Checkpoint, locate, name_failures
from r2med.models.encoding import BatchEncoder, Form, Inputs, unit
from r2med.retrieve.dense.retriever import Settings
from r2med.runs.run import offsets_of

#: The only accepted values of settings that have no effect on a mean of token vectors.
_FIXED: Mapping[str, tuple[object, ...]] = {
    "pooling": ("mean", "model"),
    "pool_instruction": (True,),
    "attention": ("model",),
    "append_eos": (False,),
    "document_pair": (False,),
    "dtype": ("float32", "auto"),
    "autocast": (False,),
}


def build(checkpoint: str, settings: Settings, resources: Resources) -> BatchEncoder:
    """Return the static encoder of a checkpoint."""
    settings.refuse_without_effect("a static encoder", _FIXED)
    return StaticEncoder(locate(checkpoint, revision=settings.revision), settings.normalize)


@dataclass(eq=False)
class StaticEncoder:
    """An encoder that is a table of token vectors and a tokeniser."""

    checkpoint: Checkpoint
    normalize: bool

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """Everything that decides the vectors.

        These are the content of the checkpoint, and whether vectors are normalised.
        """
        return {
            "library": "static",
            "algorithms": versions("static-encoding"),
            "checkpoint": self.checkpoint.fingerprint(),
            "normalize": self.normalize,
        }

    def inputs(self, texts: Sequence[str], form: Form) -> TokenInputs:
        """Return token ids without special tokens; unknown tokens count, as in the library."""
        instructed = [form.instruction + text for text in texts]
        encodings = self._tokenizer.encode_batch(instructed, add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        limit = form.max_length or max(map(len, rows), default=0)
        truncated = [len(ids) > limit for ids in rows]
        rows = [ids[:limit] for ids in rows]
        return TokenInputs(self._tokenizer, rows, truncated, texts=instructed)

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Return the mean token vector of every text; a text without tokens has the zero vector."""
        assert isinstance(inputs, TokenInputs)
        vectors = np.zeros((len(rows), self._table.shape[1]), dtype=np.float32)
        lengths = inputs.tokens[rows]
        filled = np.flatnonzero(lengths)
        if len(filled):
            spans = [inputs.ids[inputs.offsets[row] : inputs.offsets[row + 1]] for row in rows]
            ids = np.minimum(np.concatenate(spans), len(self._table) - 1)
            starts = offsets_of(lengths[filled])[:-1]
            sums = np.add.reduceat(self._table[ids], starts, axis=0)
            vectors[filled] = sums / lengths[filled, None].astype(np.float32)
        return unit(vectors) if self.normalize else vectors

    def facts(self) -> Mapping[str, object]:
        """Return the name and origin of the checkpoint."""
        return self.checkpoint.facts()

    @cached_property
    def _tokenizer(self) -> Any:
        need("tokenizers", extra="light")
        from tokenizers import Tokenizer

        vocabulary = self.checkpoint.file("tokenizer.json")
        with name_failures(vocabulary):
            tokenizer = Tokenizer.from_file(str(vocabulary))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    @cached_property
    def _table(self) -> NDArray[np.float32]:
        need("safetensors", extra="light")
        from safetensors.numpy import load_file

        weights = self.checkpoint.file("model.safetensors")
        with name_failures(weights):
            tables = [table for table in load_file(weights).values() if table.ndim == 2]
        if len(tables) != 1:
            raise DataError(
                f"{weights}: has {len(tables)} matrices, expected one with a row for each token."
            )
        return np.ascontiguousarray(tables[0], dtype=np.float32)
