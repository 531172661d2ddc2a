"""From texts to vectors: what the store has is taken, the rest is encoded in planned batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, MissingError, R2MedError
from r2med.retrieve.conditions import Conditions, Progress
from r2med.retrieve.dense.encoder import Encoder, Inputs, StreamingEncoder
from r2med.retrieve.dense.form import Form, Side
from r2med.retrieve.dense.store import Shelf

#: Texts tokenised at a time: enough for even batches, little enough for memory.
_WINDOW = 8192
_MOST_TEXTS = 256


@dataclass(frozen=True, eq=False)
class Encoded:
    """Where the vectors of some texts are: equal texts share a place."""

    shelf: Shelf
    places: NDArray[np.int64]
    """For each distinct text, its place on the shelf."""
    distinct: NDArray[np.int64]
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
        """Whether several texts have one vector between them, so that nothing tells them apart."""
        if len(self.places) < 2:
            return None
        first = self.matrix(0, 1)
        starts = range(0, len(self.places), _WINDOW)
        if not all((self.matrix(start, start + _WINDOW) == first).all() for start in starts):
            return None
        return "equal" if first.any() else "zero"


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


@dataclass
class _Tally:
    tokens: int = 0
    model_seconds: float = 0.0
    tokeniser_seconds: float = 0.0


def encode(work: Work, shelf: Shelf, conditions: Conditions) -> Encoded:
    """Make sure the shelf holds every text, and say where; the first text's input is kept too."""
    addresses, firsts, distinct = _distinct(work)
    missing = np.flatnonzero(shelf.find(addresses) < 0)
    tally, start = _Tally(), time.perf_counter()
    if len(missing):
        _encode_missing(work, shelf, addresses, firsts, missing, tally, conditions)
    seconds = time.perf_counter() - start
    places = shelf.find(addresses)
    facts = _facts(work, shelf, addresses, places, len(missing), tally, seconds)
    return Encoded(shelf, places, distinct, facts)


def _distinct(work: Work) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Addresses of the distinct texts, the first row of each, and each row's distinct text."""
    addresses = work.form.addresses(work.texts)
    keys = addresses.view(f"V{addresses.shape[1]}").ravel() if len(addresses) else addresses
    order: dict[bytes, int] = {}
    distinct = np.array([order.setdefault(key.tobytes(), len(order)) for key in keys], np.int64)
    firsts = np.full(len(order), len(work.texts), dtype=np.int64)
    np.minimum.at(firsts, distinct, np.arange(len(distinct)))
    return addresses[firsts], firsts, distinct


def _encode_missing(
    work: Work,
    shelf: Shelf,
    addresses: NDArray[np.uint8],
    firsts: NDArray[np.int64],
    missing: NDArray[np.int64],
    tally: _Tally,
    conditions: Conditions,
) -> None:
    """Longest texts first, so that a batch that does not fit shows at once and padding is small."""
    start, done = time.perf_counter(), 0
    sizes = np.array([len(work.texts[row]) for row in firsts[missing]], dtype=np.int64)
    queue = missing[np.argsort(-sizes, kind="stable")]
    batches = _Batches(work.encoder, conditions)
    try:
        for window in _windows(queue):
            shelf.refresh()
            todo = window[shelf.find(addresses[window]) < 0]
            done += len(window) - len(todo)
            rows = firsts[todo]
            began = time.perf_counter()
            inputs = work.encoder.inputs([work.texts[row] for row in rows], work.form)
            tally.tokeniser_seconds += time.perf_counter() - began
            tally.tokens += int(inputs.tokens.sum())
            if 0 in rows:
                place = int(np.flatnonzero(rows == 0)[0])
                shelf.remember(addresses[todo[place]].tobytes(), inputs.seen(place))
            for batch, vectors in batches.run(inputs, work, rows, tally):
                chosen = todo[batch]
                shelf.add(addresses[chosen], vectors, inputs.tokens[batch], inputs.truncated[batch])
                done += len(batch)
                spent = time.perf_counter() - start
                conditions.progress(Progress(f"encoding {work.side}s", done, len(queue), spent))
    finally:
        shelf.close()
        shelf.refresh()


def _windows(queue: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(queue), _WINDOW):
        yield queue[start : start + _WINDOW]


class _Batches:
    """Batches of like length within a budget of padded tokens, which shrinks when memory is out."""

    def __init__(self, encoder: Encoder, conditions: Conditions) -> None:
        self.encoder = encoder
        self.budget = conditions.batch_tokens
        self.tell = conditions.tell
        self.width: int | None = None

    def run(
        self, inputs: Inputs, work: Work, rows: NDArray[np.int64], tally: _Tally
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Each batch's rows of the inputs, with their vectors, as it finishes."""
        if isinstance(self.encoder, StreamingEncoder):
            yield from self._streamed(self.encoder, inputs, work, rows, tally)
            return
        queue = np.argsort(-inputs.lengths, kind="stable").astype(np.int64)
        while len(queue):
            batch = queue[: self._fitting(inputs.lengths[queue])]
            began = time.perf_counter()
            try:
                vectors = self.encoder.encode(inputs, batch)
            except Exception as problem:
                if not out_of_memory(problem):
                    raise
                self._halve(inputs, batch, work, rows, problem)
                continue
            tally.model_seconds += time.perf_counter() - began
            self._check(vectors, batch, work, rows)
            yield batch, vectors
            queue = queue[len(batch) :]

    def _streamed(
        self,
        encoder: StreamingEncoder,
        inputs: Inputs,
        work: Work,
        rows: NDArray[np.int64],
        tally: _Tally,
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        began = time.perf_counter()
        for batch, vectors in encoder.stream(inputs):
            self._check(vectors, batch, work, rows)
            yield batch, vectors
        tally.model_seconds += time.perf_counter() - began

    def _fitting(self, lengths: NDArray[np.int64]) -> int:
        """How many of the next inputs, longest first, a batch takes: one at least."""
        longest = max(1, int(lengths[0]))
        return max(1, min(self.budget // longest, _MOST_TEXTS))

    def _halve(
        self,
        inputs: Inputs,
        batch: NDArray[np.int64],
        work: Work,
        rows: NDArray[np.int64],
        problem: Exception,
    ) -> None:
        longest = max(1, int(inputs.lengths[batch[0]]))
        if len(batch) == 1:
            raise MissingError(
                f"{work.name(int(rows[batch[0]]))}: not enough memory to encode this one text of "
                f"{longest} tokens.\nGive a smaller [max_length=...] or another device. ({problem})"
            ) from None
        self.budget = max(1, longest * (len(batch) // 2))
        self.tell(
            f"out of memory at {len(batch)} texts of up to {longest} tokens; "
            f"going on with batches of {self.budget} tokens."
        )

    def _check(
        self,
        vectors: NDArray[np.float32],
        batch: NDArray[np.int64],
        work: Work,
        rows: NDArray[np.int64],
    ) -> None:
        if vectors.ndim != 2 or len(vectors) != len(batch):
            raise DataError(
                f"the encoder gave an array of shape {vectors.shape} for {len(batch)} texts, "
                f"expected ({len(batch)}, width).\n"
                f"The batch began with {_quoted(work, int(rows[batch[0]]))}."
            )
        if not work.ragged and self.width not in (None, vectors.shape[1]):
            raise DataError(
                f"the encoder gave vectors of {vectors.shape[1]} numbers after vectors of "
                f"{self.width}.\nThe batch began with {_quoted(work, int(rows[batch[0]]))}."
            )
        self.width = vectors.shape[1]
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            row = int(rows[batch[np.flatnonzero(~finite)[0]]])
            raise DataError(
                f"the encoder gave a vector with NaN or infinity for {_quoted(work, row)}.\n"
                "If the model runs in float16, try [dtype=float32] or [dtype=bfloat16]."
            )


def out_of_memory(problem: BaseException) -> bool:
    """Whether an error of any library, or the cause of one of ours, means that memory ran out."""
    if isinstance(problem, MemoryError) or type(problem).__name__ == "OutOfMemoryError":
        return True
    if isinstance(problem, R2MedError):
        return problem.__cause__ is not None and out_of_memory(problem.__cause__)
    text = str(problem).lower()
    return isinstance(problem, RuntimeError) and (
        "out of memory" in text or "can't allocate memory" in text
    )


def _quoted(work: Work, row: int) -> str:
    text = work.texts[row]
    return f"{work.name(row)}: {text[:80] + ('...' if len(text) > 80 else '')!r}"


def _facts(
    work: Work,
    shelf: Shelf,
    addresses: NDArray[np.uint8],
    places: NDArray[np.int64],
    encoded: int,
    tally: _Tally,
    seconds: float,
) -> dict[str, object]:
    tokens, truncated = shelf.tokens(places)
    facts: dict[str, object] = {
        "texts": len(work.texts),
        "distinct": len(places),
        "reused": len(places) - encoded,
        "tokens": int(tokens.sum()) or None,
        "truncated": round(float(truncated.mean()), 6) if tokens.any() else None,
    }
    if len(places):
        text = work.form.instruction + work.texts[0]
        facts["first"] = shelf.seen(addresses[0].tobytes()) or text
    if encoded:
        facts |= {
            "encoded_tokens": tally.tokens or None,
            "seconds": round(seconds, 3),
            "model_seconds": round(tally.model_seconds, 3),
            "tokeniser_seconds": round(tally.tokeniser_seconds, 3),
            "texts_per_second": round(encoded / seconds, 1) if seconds else None,
        }
    return facts
