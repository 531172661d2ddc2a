"""From texts to vectors: what an encoder promises, and the loop that encodes what is not stored."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError
from r2med.models.batching import Batches, TokenInputs
from r2med.models.vectors import Addresses, Computed, Rows, Shelf, distinct, fill, hashed
from r2med.retrieve.conditions import Conditions, Progress

Side = Literal["query", "document"]
SIDES: tuple[Side, Side] = ("query", "document")

#: Texts tokenised at a time: enough for even batches, little enough for memory.
_WINDOW = 8192


@dataclass(frozen=True)
class Form:
    """Everything besides the text itself that decides the model's input.

    It is part of each text's address in the store, so a changed instruction never meets a vector
    of the old one, and sides that are put to the model alike share their vectors.
    """

    instruction: str = ""
    max_length: int = 0
    """Tokens, special ones included; 0 leaves the model's own limit."""
    pair: bool = False
    """Whether the text is the second segment after an empty first one."""

    def addresses(self, texts: Iterable[str]) -> Addresses:
        """The address of each text in the store: a hash of the form and the text."""
        return hashed(json.dumps(asdict(self), sort_keys=True).encode() + b"\0", texts)


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
    """Whole texts, for a model that tokenises by itself; their tokens may be counted beforehand."""

    texts: Sequence[str]
    form: Form
    counted: TokenInputs | None = None

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each text; where nobody knows, every text weighs the same."""
        return self.counted.lengths if self.counted else np.ones(len(self.texts), dtype=np.int64)

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Tokens of each text, or 0."""
        return self.counted.lengths if self.counted else np.zeros(len(self.texts), dtype=np.int64)

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Which texts are longer than the model's limit, as far as is known."""
        return self.counted.truncated if self.counted else self.tokens > 0

    def seen(self, row: int) -> str:
        """The tokens as text again, or the text as it is handed over."""
        return self.counted.seen(row) if self.counted else self.form.instruction + self.texts[row]


class Encoder(Protocol):
    """A model that turns texts into vectors; nothing is loaded before `inputs` is called."""

    @property
    def identity(self) -> Mapping[str, object] | None:
        """Everything besides form and text that decides a vector; None is never stored."""
        ...

    def inputs(self, texts: Sequence[str], form: Form) -> Inputs:
        """The texts as the model will see them; never fails on an empty text."""
        ...

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """One vector for each of the rows, in one batch; the caller handles memory errors."""
        ...

    def facts(self) -> Mapping[str, object]:
        """What really ran, as JSON values: checkpoint, device, precision."""
        ...


@runtime_checkable
class StreamingEncoder(Encoder, Protocol):
    """An encoder with batches of its own making, several under way: one behind an API."""

    def stream(self, inputs: Inputs) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
        """Rows of the inputs with their vectors, as they arrive; each is kept before the next."""
        ...


@dataclass(frozen=True)
class Work:
    """One side of one task, to be encoded."""

    encoder: Encoder
    form: Form
    side: Side
    texts: Sequence[str]
    name: Callable[[int], str]
    """What to call the text of a row in an error."""
    ragged: bool = False
    """Whether rows may differ in width from batch to batch, as those of token vectors do."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """Where the vectors of some texts are: equal texts share a place."""

    shelf: Shelf
    places: Rows
    """For each distinct text, its place on the shelf."""
    distinct: Rows
    """For each text, which of the distinct ones it is."""
    facts: Mapping[str, object]

    @property
    def width(self) -> int:
        """Numbers of a vector; 0 where there is none."""
        return int(self.matrix(0, 1).shape[1])

    def matrix(self, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """The vectors of the distinct texts, or of a range of them."""
        return self.shelf.gather(self.places[start:stop])

    def sameness(self) -> Literal["zero", "equal"] | None:
        """Whether all of several texts have one vector, so that nothing tells them apart."""
        if len(self.places) < 2:
            return None
        first = self.matrix(0, 1)
        starts = range(0, len(self.places), _WINDOW)
        if not all((self.matrix(start, start + _WINDOW) == first).all() for start in starts):
            return None
        return "equal" if first.any() else "zero"


def encode(work: Work, shelf: Shelf, conditions: Conditions) -> Encoded:
    """Make sure the shelf holds every text, and say where; the first text's input is kept too."""
    addresses, firsts, inside = distinct(work.form.addresses(work.texts))
    sizes = np.array([len(work.texts[row]) for row in firsts], dtype=np.int64)
    encoding = _Encoding(work, shelf, addresses, firsts, conditions)

    def progress(done: int, total: int, seconds: float) -> None:
        conditions.progress(Progress(f"encoding {work.side}s", done, total, seconds))

    start = time.perf_counter()
    count = fill(shelf, addresses, sizes, encoding.run, window=_WINDOW, progress=progress)
    seconds = time.perf_counter() - start
    places = shelf.find(addresses)
    facts = _facts(work, shelf, addresses, places)
    facts["reused"] = len(places) - count
    if count:
        facts |= encoding.costs(count, seconds)
    return Encoded(shelf, places, inside, facts)


class _Encoding:
    """The missing texts on their way through the model, with what they cost."""

    def __init__(
        self, work: Work, shelf: Shelf, addresses: Addresses, firsts: Rows, conditions: Conditions
    ) -> None:
        self.work = work
        self.shelf = shelf
        self.addresses = addresses
        self.firsts = firsts
        self.batches = Batches(conditions.batch_tokens, conditions.tell)
        self.width: int | None = None
        self.tokens = 0
        self.model_seconds = 0.0
        self.tokeniser_seconds = 0.0

    def run(self, chosen: Rows) -> Iterator[Computed]:
        """The vectors of some distinct texts, batch by batch."""
        rows, encoder = self.firsts[chosen], self.work.encoder
        began = time.perf_counter()
        inputs = encoder.inputs([self.work.texts[row] for row in rows], self.work.form)
        self.tokeniser_seconds += time.perf_counter() - began
        self.tokens += int(inputs.tokens.sum())
        if 0 in rows:
            place = int(np.flatnonzero(rows == 0)[0])
            self.shelf.remember(self.addresses[chosen[place]].tobytes(), inputs.seen(place))
        if isinstance(encoder, StreamingEncoder):
            outputs = encoder.stream(inputs)
        else:
            outputs = self.batches.run(
                inputs.lengths,
                lambda batch: encoder.encode(inputs, batch),
                lambda row: self.work.name(int(rows[row])),
            )
        began = time.perf_counter()
        for batch, vectors in outputs:
            self.model_seconds += time.perf_counter() - began
            self._check(vectors, rows[batch])
            yield Computed(batch, vectors, inputs.tokens[batch], inputs.truncated[batch])
            began = time.perf_counter()

    def costs(self, count: int, seconds: float) -> dict[str, object]:
        """For the record."""
        return {
            "encoded_tokens": self.tokens or None,
            "seconds": round(seconds, 3),
            "model_seconds": round(self.model_seconds, 3),
            "tokeniser_seconds": round(self.tokeniser_seconds, 3),
            "texts_per_second": round(count / seconds, 1) if seconds else None,
        }

    def _check(self, vectors: NDArray[np.float32], rows: Rows) -> None:
        if vectors.ndim != 2 or len(vectors) != len(rows):
            raise DataError(
                f"the encoder gave an array of shape {vectors.shape} for {len(rows)} texts, "
                f"expected ({len(rows)}, width).\nThe batch began with {self._quoted(rows[0])}."
            )
        if not self.work.ragged and self.width not in (None, vectors.shape[1]):
            raise DataError(
                f"the encoder gave vectors of {vectors.shape[1]} numbers after vectors of "
                f"{self.width}.\nThe batch began with {self._quoted(rows[0])}."
            )
        self.width = vectors.shape[1]
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            row = rows[np.flatnonzero(~finite)[0]]
            raise DataError(
                f"the encoder gave a vector with NaN or infinity for {self._quoted(row)}.\n"
                "If the model runs in float16, try [dtype=float32] or [dtype=bfloat16]."
            )

    def _quoted(self, row: int) -> str:
        text = self.work.texts[row]
        return f"{self.work.name(int(row))}: {text[:80] + ('...' if len(text) > 80 else '')!r}"


def _facts(work: Work, shelf: Shelf, addresses: Addresses, places: Rows) -> dict[str, object]:
    tokens, truncated = shelf.tokens(places)
    facts: dict[str, object] = {
        "texts": len(work.texts),
        "distinct": len(places),
        "tokens": int(tokens.sum()) or None,
        "truncated": round(float(truncated.mean()), 6) if tokens.any() else None,
    }
    if len(places):
        text = work.form.instruction + work.texts[0]
        facts["first"] = shelf.seen(addresses[0].tobytes()) or text
    return facts


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vectors at length 1; zero vectors stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    norms[norms == 0] = 1
    lengthened: NDArray[np.float32] = vectors / norms
    return lengthened
