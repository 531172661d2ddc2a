"""Encoders that sentence-transformers runs itself: checkpoints with modules of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, MissingError
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.checkpoint import Checkpoint
from r2med.retrieve.dense.encoder import Inputs, TextInputs
from r2med.retrieve.dense.form import Form
from r2med.retrieve.dense.loading import failures_told, refuse_foreign_code
from r2med.retrieve.dense.tokens import tokenise

#: Raised when equal texts would get other vectors: 2 sets each side's own limit of tokens.
_VERSION = 2


@dataclass(frozen=True, eq=False)
class CountedInputs(TextInputs):
    """Texts that the library tokenises itself, with their tokens counted beforehand."""

    counted: Inputs

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each text."""
        return self.counted.lengths

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Tokens of each text."""
        return self.counted.lengths

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Which texts are longer than the model's limit."""
        return self.counted.truncated

    def seen(self, row: int) -> str:
        """The tokens as text again."""
        return self.counted.seen(row)


@dataclass
class LibraryModel:
    """A model of sentence-transformers, loaded when it is first needed."""

    checkpoint: Checkpoint
    kind: str
    """The class: SentenceTransformer, SparseEncoder or MultiVectorEncoder."""
    dtype: str
    conditions: Conditions
    max_length: int = 0

    @cached_property
    def model(self) -> Any:
        """The loaded model."""
        try:
            import sentence_transformers
        except ImportError:
            raise MissingError(
                "this checkpoint needs sentence-transformers: pip install 'r2med[dense]'."
            ) from None
        if not hasattr(sentence_transformers, self.kind):
            raise MissingError(
                f"this checkpoint needs sentence-transformers with {self.kind}: "
                "pip install --upgrade sentence-transformers."
            )
        model = self._whole(getattr(sentence_transformers, self.kind))
        if self.max_length:
            model.max_seq_length = self.max_length
        return model.eval()

    def _whole(self, library_class: Any) -> Any:
        """The model, all of whose weights come from the checkpoint.

        The library fills what a checkpoint lacks with random weights: where loading draws random
        numbers, a second load with others tells whether any of them stayed.
        """
        model, drew = self._load(library_class, seed=0)
        if drew:
            again = self._load(library_class, seed=1)[0].state_dict()
            drawn = [
                name for name, held in model.state_dict().items() if not held.equal(again[name])
            ]
            if drawn:
                raise DataError(
                    f"{self.checkpoint.folder}: the checkpoint lacks {len(drawn)} of the weights "
                    f"of a {self.kind}, such as {drawn[0]}; they would be random."
                )
        return model

    def _load(self, library_class: Any, *, seed: int) -> tuple[Any, bool]:
        """A model, and whether loading it drew random numbers; the caller's are left alone."""
        import torch

        from r2med.retrieve.dense.backbone import chosen_device, quiet_loading

        folder = self.checkpoint.folder
        refuse_foreign_code(folder, allowed=self.conditions.trust_remote_code)
        with failures_told(folder), quiet_loading(), torch.random.fork_rng(devices=[]):
            before = torch.manual_seed(seed).get_state()
            model = library_class(
                str(folder),
                device=chosen_device(self.conditions),
                trust_remote_code=self.conditions.trust_remote_code,
                model_kwargs={"dtype": self.dtype},
            )
            return model, not torch.get_rng_state().equal(before)

    @cached_property
    def own_limit(self) -> int | None:
        """Tokens at which the model cuts a text by itself, before anybody sets another limit."""
        limit: int | None = self.model.max_seq_length
        return limit

    def inputs(self, texts: Sequence[str], form: Form) -> TextInputs:
        """The texts, with their tokens counted where the tokeniser allows it."""
        tokenizer = getattr(self.model, "tokenizer", None)
        if not callable(tokenizer):
            return TextInputs(texts, form)
        limit = form.max_length or self.own_limit or 0
        counted = tokenise(tokenizer, texts, form, limit=limit, append_eos=False)
        return CountedInputs(texts, form, counted)

    @property
    def identity(self) -> Mapping[str, object]:
        """The checkpoint's content, which class runs it, and the arithmetic."""
        return {
            "library": f"sentence-transformers/{self.kind}",
            "checkpoint": self.checkpoint.fingerprint(),
            "dtype": self.dtype,
            "max_length": self.max_length,
        }

    def facts(self) -> Mapping[str, object]:
        """The checkpoint, and the device where the model was needed."""
        told = {"checkpoint": self.checkpoint.name, "origin": self.checkpoint.origin}
        return {**told, **({"device": str(self.model.device)} if "model" in vars(self) else {})}


class LibraryEncoder:
    """One side of a library model."""

    def __init__(
        self,
        model: LibraryModel,
        run: Callable[[Any, list[str], Form], NDArray[np.float32]],
        **told: object,
    ) -> None:
        self.library = model
        self._run = run
        self._told = told

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The model's, and what this side does with it."""
        return {**self.library.identity, **self._told}

    def inputs(self, texts: Sequence[str], form: Form) -> TextInputs:
        """The texts themselves; the library tokenises."""
        return self.library.inputs(texts, form)

    def encode(self, inputs: Inputs, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """One batch, by the library's own `encode`."""
        assert isinstance(inputs, TextInputs)
        chosen = [inputs.texts[row] for row in rows]
        model, limit = self.library.model, self.library.own_limit
        if inputs.form.max_length:
            model.max_seq_length = inputs.form.max_length
        try:
            return self._run(model, chosen, inputs.form)
        finally:
            model.max_seq_length = limit

    def facts(self) -> Mapping[str, object]:
        """The checkpoint, and the device where the model was needed."""
        return self.library.facts()


def sentence_encoder(
    checkpoint: Checkpoint,
    conditions: Conditions,
    *,
    dtype: str,
    normalize: bool,
    pool_instruction: bool,
) -> LibraryEncoder:
    """A dense model with modules of its own."""

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

    model = LibraryModel(checkpoint, "SentenceTransformer", dtype, conditions)
    identity = {"normalize": normalize, "pool_instruction": pool_instruction}
    return LibraryEncoder(model, run, version=_VERSION, **identity)
