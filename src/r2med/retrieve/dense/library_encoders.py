"""Encoders that sentence-transformers runs, or code in the checkpoint.

`LibraryModel` also loads the sparse and late-interaction models of `retrieve.multi`. NV-Embed is
the published model that needs the code in its checkpoint, for its latent attention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.algorithms import versions
from r2med.errors import DataError, MissingError, UsageError, need
from r2med.execution.resources import Resources
from r2med.models.batching import Rows
from r2med.models.checkpoint import (
    Checkpoint,
    LocalModel,
    describe_foreign_code,
    locate,
    quiet_loading,
)
from r2med.models.encoding import Form, Inputs, TextInputs
from r2med.models.missing_weights import find_missing_weights, initialise_with_nan
from r2med.retrieve.dense.retriever import Settings
from r2med.retrieve.dense.transformer import tokenise

#: Settings that the library decides: the only values that are accepted for them.
_FIXED: Mapping[str, tuple[object, ...]] = {
    "pooling": ("model",),
    "attention": ("model",),
    "append_eos": (False,),
    "document_pair": (False,),
    "autocast": (False,),
}


@dataclass(eq=False)
class LibraryModel(LocalModel):
    """A model of sentence-transformers, loaded when it is first needed."""

    class_name: str
    """The name of the class: SentenceTransformer, SparseEncoder or MultiVectorEncoder."""
    max_length: int = 0

    @cached_property
    def model(self) -> Any:
        """The loaded model; a DataError if the checkpoint lacks some of its weights."""
        need("torch", "transformers", "sentence_transformers", extra="dense")
        import sentence_transformers

        if not hasattr(sentence_transformers, self.class_name):
            raise MissingError(
                f"this needs sentence-transformers with {self.class_name}: "
                "pip install --upgrade sentence-transformers."
            )
        trust = self.options.trust_remote_code
        self.checkpoint.refuse_foreign_code(trusted=trust)
        with quiet_loading(self.folder), initialise_with_nan():
            model = getattr(sentence_transformers, self.class_name)(
                str(self.folder),
                device=self.device,
                trust_remote_code=trust,
                model_kwargs={"dtype": self.dtype},
            )
        if missing := find_missing_weights(model):
            raise DataError(
                f"{self.folder}: the checkpoint lacks {len(missing)} of the weights of a "
                f"{self.class_name}, such as {missing[0]}; they would be random."
            )
        if self.max_length:
            model.max_seq_length = self.max_length
        return model.eval()

    @cached_property
    def default_limit(self) -> int | None:
        """The most tokens per text that the model reads, unless a side has its own limit."""
        limit: int | None = self.model.max_seq_length
        return limit


@dataclass(eq=False)
class LibraryEncoder:
    """The query encoder or the document encoder of a model that a library runs."""

    library: LibraryModel
    run: Callable[[Any, list[str], Form], NDArray[np.float32]]
    """Function that encodes one batch of texts with the library's model."""
    settings: Mapping[str, object]
    """Settings of this side that decide its vectors; part of the identity."""

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """Everything that decides the vectors.

        These are the content of the checkpoint and of the bases of its adapters, the class, and the
        settings.
        """
        library = self.library
        bases = [base.fingerprint() for base in library.checkpoint.adapter_bases()]
        return {
            "library": f"sentence-transformers/{library.class_name}",
            "algorithms": versions("library-encoding"),
            "checkpoint": library.checkpoint.fingerprint(),
            **({"bases": bases} if bases else {}),
            "dtype": library.dtype,
            "max_length": library.max_length,
            **self.settings,
        }

    def inputs(self, texts: Sequence[str], form: Form) -> TextInputs:
        """Return the texts, with their tokens counted if the library's tokeniser allows it."""
        tokenizer = getattr(self.library.model, "tokenizer", None)
        if not callable(tokenizer):
            return TextInputs.of(texts, form)
        limit = form.max_length or self.library.default_limit or 0
        return TextInputs.of(texts, form, tokenise(tokenizer, texts, form, limit=limit))

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Encode one batch with the library."""
        assert isinstance(inputs, TextInputs)
        texts = [inputs.texts[row] for row in rows]
        model, limit = self.library.model, self.library.default_limit
        if not inputs.form.max_length:
            return self.run(model, texts, inputs.form)
        model.max_seq_length = inputs.form.max_length
        try:
            return self.run(model, texts, inputs.form)
        finally:
            model.max_seq_length = limit

    def facts(self) -> Mapping[str, object]:
        """Return the checkpoint, and the device and precision if the model was loaded."""
        return self.library.facts()


def sentence_encoder(
    checkpoint: Checkpoint, settings: Settings, resources: Resources
) -> LibraryEncoder:
    """Return the encoder of a checkpoint in the format of sentence-transformers."""
    name = f"{checkpoint.name}, a checkpoint of sentence-transformers"
    settings.refuse_without_effect(name, _FIXED)
    normalize, pool_instruction = settings.normalize, settings.pool_instruction

    def run(model: Any, texts: list[str], form: Form) -> NDArray[np.float32]:
        if not pool_instruction:
            model.set_pooling_include_prompt(False)
        vectors = model.encode(
            texts,
            prompt=form.instruction,
            batch_size=len(texts),
            show_progress_bar=False,
            normalize_embeddings=normalize,
        )
        return np.asarray(vectors, dtype=np.float32)

    model = LibraryModel(checkpoint, settings.dtype, resources.options, "SentenceTransformer")
    identity = {"normalize": normalize, "pool_instruction": pool_instruction}
    return LibraryEncoder(model, run, identity)


@dataclass(eq=False)
class MethodEncoder(LocalModel):
    """Encoder that calls `encode(texts, instruction=..., max_length=...)` in checkpoint code."""

    normalize: bool

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """Everything that decides the vectors.

        These are the checkpoint with its code, the precision, and whether vectors are normalised.
        """
        return {
            "library": "method",
            "algorithms": versions("library-encoding"),
            "checkpoint": self.checkpoint.fingerprint(),
            "dtype": self.dtype,
            "normalize": self.normalize,
        }

    def inputs(self, texts: Sequence[str], form: Form) -> TextInputs:
        """Return the texts with token counts, which exclude an end token that the model may add."""
        counted = tokenise(self.tokenizer, texts, form, limit=form.max_length)
        return TextInputs.of(texts, form, counted)

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Return the vectors of one batch as float32, normalised if the settings ask for it."""
        import torch

        assert isinstance(inputs, TextInputs)
        if not callable(getattr(self.model, "encode", None)):
            raise DataError(
                f"{self.checkpoint.name}: its code has no `encode` method. Without library=method "
                "a checkpoint's hidden states are pooled."
            )
        texts = [inputs.texts[row] for row in rows]
        options: dict[str, Any] = {"instruction": inputs.form.instruction}
        if inputs.form.max_length:
            options["max_length"] = inputs.form.max_length
        with torch.inference_mode():
            vectors = self.model.encode(texts, **options).float()
            if self.normalize:
                vectors = torch.nn.functional.normalize(vectors, dim=-1)
        encoded: NDArray[np.float32] = vectors.cpu().numpy()
        return encoded


def build(checkpoint: str, settings: Settings, resources: Resources) -> MethodEncoder:
    """Return the encoder of a checkpoint that brings its code, if the caller trusts it."""
    if not resources.options.trust_remote_code:
        raise UsageError(describe_foreign_code(checkpoint))
    fixed = {**_FIXED, "pool_instruction": (True,)}
    settings.refuse_without_effect(f"{checkpoint}, a checkpoint that brings its code", fixed)
    located = locate(checkpoint, revision=settings.revision)
    need("torch", "transformers", extra="dense")
    return MethodEncoder(located, settings.dtype, resources.options, settings.normalize)
