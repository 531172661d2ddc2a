"""Encoders run by code that is not ours: sentence-transformers, or what a checkpoint brings along.

`LibraryModel` also loads the sparse and late-interaction models of `retrieve.multi`. NV-Embed is
the published model with code of its own: its latent attention exists nowhere else.
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
from r2med.models.checkpoint import Checkpoint, LocalModel, foreign_code, loading, locate
from r2med.models.encoding import Form, Inputs, TextInputs
from r2med.retrieve.dense.retriever import Settings
from r2med.retrieve.dense.transformer import tokenise

#: What is left to the code of others, and cannot be set.
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

    kind: str
    """The class: SentenceTransformer, SparseEncoder or MultiVectorEncoder."""
    max_length: int = 0

    @cached_property
    def model(self) -> Any:
        """The loaded model, all of whose weights come from the checkpoint."""
        need("torch", "transformers", "sentence_transformers", extra="dense")
        # The library fills what a checkpoint lacks with random weights: where loading draws random
        # numbers, a second load with others tells whether any of them stayed.
        model, drew = self._load(seed=0)
        weights: dict[str, Any] = model.state_dict() if drew else {}
        again = self._load(seed=1)[0].state_dict() if drew else {}
        drawn = [name for name, held in weights.items() if not held.equal(again[name])]
        if drawn:
            raise DataError(
                f"{self.folder}: the checkpoint lacks {len(drawn)} of the weights of a "
                f"{self.kind}, such as {drawn[0]}; they would be random."
            )
        if self.max_length:
            model.max_seq_length = self.max_length
        return model.eval()

    @cached_property
    def own_limit(self) -> int | None:
        """Tokens at which the model cuts a text by itself, before anybody sets another limit."""
        limit: int | None = self.model.max_seq_length
        return limit

    def _load(self, *, seed: int) -> tuple[Any, bool]:
        """A model, and whether loading it drew random numbers; the caller's are left alone."""
        import sentence_transformers
        import torch

        if not hasattr(sentence_transformers, self.kind):
            raise MissingError(
                f"this needs sentence-transformers with {self.kind}: "
                "pip install --upgrade sentence-transformers."
            )
        folder, trust = self.folder, self.options.trust_remote_code
        self.checkpoint.refuse_foreign_code(trusted=trust)
        with loading(folder), torch.random.fork_rng(devices=[]):
            before = torch.manual_seed(seed).get_state()
            model = getattr(sentence_transformers, self.kind)(
                str(folder),
                device=self.device,
                trust_remote_code=trust,
                model_kwargs={"dtype": self.dtype},
            )
            return model, not torch.get_rng_state().equal(before)


@dataclass(eq=False)
class LibraryEncoder:
    """One side of a library model: `run` calls the library, `besides` joins its identity."""

    library: LibraryModel
    run: Callable[[Any, list[str], Form], NDArray[np.float32]]
    besides: Mapping[str, object]

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The checkpoint's content, which class runs it and how, and what this side adds."""
        library = self.library
        return {
            "library": f"sentence-transformers/{library.kind}",
            "algorithms": versions("library-encoding"),
            "checkpoint": library.checkpoint.fingerprint(),
            "dtype": library.dtype,
            "max_length": library.max_length,
            **self.besides,
        }

    def inputs(self, texts: Sequence[str], form: Form) -> TextInputs:
        """The texts, with their tokens counted where the library's tokeniser allows it."""
        tokenizer = getattr(self.library.model, "tokenizer", None)
        if not callable(tokenizer):
            return TextInputs.of(texts, form)
        limit = form.max_length or self.library.own_limit or 0
        return TextInputs.of(texts, form, tokenise(tokenizer, texts, form, limit=limit))

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """One batch, by the library's own `encode`."""
        assert isinstance(inputs, TextInputs)
        texts = [inputs.texts[row] for row in rows]
        model, limit = self.library.model, self.library.own_limit
        if not inputs.form.max_length:
            return self.run(model, texts, inputs.form)
        model.max_seq_length = inputs.form.max_length
        try:
            return self.run(model, texts, inputs.form)
        finally:
            model.max_seq_length = limit

    def facts(self) -> Mapping[str, object]:
        """The checkpoint, and the device and precision where the model was needed."""
        return self.library.facts()


def sentence_encoder(
    checkpoint: Checkpoint, settings: Settings, resources: Resources
) -> LibraryEncoder:
    """A dense model with modules of its own, run by sentence-transformers."""
    name = f"{checkpoint.name}, a checkpoint with modules of its own"
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
    besides = {"normalize": normalize, "pool_instruction": pool_instruction}
    return LibraryEncoder(model, run, besides)


@dataclass(eq=False)
class MethodEncoder(LocalModel):
    """A checkpoint's own `encode(texts, instruction=..., max_length=...)`, which applies both."""

    normalize: bool

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The checkpoint with its code, and the arithmetic."""
        return {
            "library": "method",
            "algorithms": versions("library-encoding"),
            "checkpoint": self.checkpoint.fingerprint(),
            "dtype": self.dtype,
            "normalize": self.normalize,
        }

    def inputs(self, texts: Sequence[str], form: Form) -> TextInputs:
        """The texts, counted by the checkpoint's tokeniser; an end token of the model's is not."""
        counted = tokenise(self.tokenizer, texts, form, limit=form.max_length)
        return TextInputs.of(texts, form, counted)

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """One batch, in float32 and normalised where the settings say so."""
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
    """The encoder of a checkpoint with code of its own, if the caller allows that code."""
    if not resources.options.trust_remote_code:
        raise UsageError(foreign_code(checkpoint))
    fixed = {**_FIXED, "pool_instruction": (True,)}
    settings.refuse_without_effect(f"{checkpoint}, a checkpoint with code of its own", fixed)
    located = locate(checkpoint, revision=settings.revision)
    need("torch", "transformers", extra="dense")
    return MethodEncoder(located, settings.dtype, resources.options, settings.normalize)
