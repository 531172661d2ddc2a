"""What a dense encoder promises: texts become inputs, and rows of inputs become vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.dense.form import Form


class Inputs(Protocol):
    """Texts made ready for the model, so that batches can be planned before it runs."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """What each input weighs in a batch: its tokens, or 1 where the model batches by itself."""
        ...

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Tokens of each input after truncation, for the record; 0 where nobody knows."""
        ...

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Which inputs lost their end."""
        ...

    def seen(self, row: int) -> str:
        """One input as the model sees it, special tokens included where they are known."""
        ...


@dataclass(frozen=True)
class TextInputs:
    """Inputs of a model whose tokens nobody sees: whole texts, batched by count."""

    texts: Sequence[str]
    form: Form

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Every text weighs the same."""
        return np.ones(len(self.texts), dtype=np.int64)

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Unknown."""
        return np.zeros(len(self.texts), dtype=np.int64)

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Unknown, so none."""
        return np.zeros(len(self.texts), dtype=np.bool_)

    def seen(self, row: int) -> str:
        """The text as it is handed over."""
        return self.form.instruction + self.texts[row]


class Encoder(Protocol):
    """A model that turns texts into vectors; nothing is loaded before `inputs` is called."""

    @property
    def identity(self) -> Mapping[str, object] | None:
        """Everything besides form and text that decides a vector; None is never stored."""
        ...

    def inputs(self, texts: Sequence[str], form: Form) -> Inputs:
        """The texts as the model will see them; never fails on an empty text."""
        ...

    def encode(self, inputs: Inputs, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """One vector for each of the rows, in one batch; memory errors are the caller's to mend."""
        ...

    def facts(self) -> Mapping[str, object]:
        """What really ran, as JSON values: device, precision, backend."""
        ...


@runtime_checkable
class StreamingEncoder(Encoder, Protocol):
    """An encoder with batches of its own making, several under way: one behind an API."""

    def stream(self, inputs: Inputs) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Rows of the inputs with their vectors, as they arrive; each is kept before the next."""
        ...
