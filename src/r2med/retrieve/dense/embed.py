"""From texts to vectors: what an encoder promises, and the loop that encodes what is not stored.

A reranker that scores pairs is an encoder too: its texts are pairs, its vectors one number.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DamagedError, DataError
from r2med.models.batching import Batches, TokenInputs
from r2med.models.vectors import Addresses, Computed, Depot, Rows, Shelf, distinct, hashed, pieces
from r2med.retrieve.conditions import Conditions, Tell

Side = Literal["query", "document"]
SIDES: tuple[Side, Side] = ("query", "document")


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

    def addresses(self, texts: Iterable[Any]) -> Addresses:
        """The address of each text in the store: a hash of the form and the text."""
        return hashed(json.dumps(asdict(self), sort_keys=True).encode() + b"\0", texts)


@dataclass(frozen=True, eq=False)
class TextInputs:
    """Whole texts, for a model that tokenises by itself."""

    texts: Sequence[Any]
    form: Form
    tokens: NDArray[np.int64]
    truncated: NDArray[np.bool_]
    counted: TokenInputs | None = None
    """The texts as the model will tokenise them, where that is known beforehand."""

    @classmethod
    def of(cls, texts: Sequence[Any], form: Form, counted: TokenInputs | None = None) -> TextInputs:
        """Texts with their tokens, or without any count."""
        if counted:
            return cls(texts, form, counted.tokens, counted.truncated, counted)
        none = np.zeros(len(texts), dtype=np.int64)
        return cls(texts, form, none, none > 0)

    def seen(self, row: int) -> str:
        """The tokens as text again, or the text, or both of a pair, as handed over."""
        if self.counted:
            return self.counted.seen(row)
        text = self.texts[row]
        return self.form.instruction + text if isinstance(text, str) else "\n".join(text)


Inputs: TypeAlias = TokenInputs | TextInputs
"""Texts made ready for the model, so that batches can be planned before it runs."""


class Encoder(Protocol):
    """A model that turns texts into vectors; nothing is loaded before `inputs` is called."""

    @property
    def identity(self) -> Mapping[str, object] | None:
        """Everything besides form and text that decides a vector; None is never stored."""

    def inputs(self, texts: Sequence[Any], form: Form) -> Inputs:
        """The texts as the model will see them; never fails on an empty text."""

    def facts(self) -> Mapping[str, object]:
        """What really ran, as JSON values: checkpoint, device, precision."""


class BatchEncoder(Encoder, Protocol):
    """An encoder in this process, to which batches are given one after the other."""

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """One vector for each of the rows, in one batch; the caller handles memory errors."""


@runtime_checkable
class StreamingEncoder(Encoder, Protocol):
    """An encoder with batches of its own making, several under way: one behind an API."""

    def stream(self, inputs: Inputs) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
        """Rows of the inputs with their vectors, as they arrive; each is kept before the next."""

    def bill(self) -> Mapping[str, object]:
        """What was billed since this was last asked."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """Where the vectors of some texts are: equal texts share a place."""

    shelf: Shelf
    places: Rows
    """For each distinct text, its place on the shelf."""
    distinct: Rows
    """For each text, which of the distinct ones it is."""
    facts: Mapping[str, object]

    def matrix(self, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """The vectors of the distinct texts, or of a range of them."""
        return self.shelf.gather(self.places[start:stop])


@dataclass(frozen=True, eq=False)
class TextPiece:
    """Some texts on their way to an encoder, here or in a worker."""

    texts: Sequence[Any]
    names: Sequence[str]
    """What to call each text in an error."""
    form: Form
    addresses: Addresses
    depot: Depot | None
    """Where a worker leaves the vectors; None hands them back."""
    shown: int | None
    """The text to be shown as the model saw it."""

    def __str__(self) -> str:
        return f"{len(self.names):,} texts from {self.names[0]} to {self.names[-1]}"

    def check(self, vectors: NDArray[np.float32], rows: Rows) -> None:
        """A DataError where a model's output for some of the texts is not one vector for each."""
        if vectors.ndim != 2 or len(vectors) != len(rows):
            raise DataError(
                f"the encoder gave an array of shape {vectors.shape} for {len(rows)} texts, "
                f"expected ({len(rows)}, width).\nThe batch began with {self._quoted(rows[0])}."
            )
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            bad = self._quoted(rows[np.flatnonzero(~finite)[0]])
            raise DataError(
                f"the model gave NaN or infinity for {bad}, expected a finite number.\n"
                "If it runs in float16, try [dtype=float32] or [dtype=bfloat16]."
            )

    def _quoted(self, row: int) -> str:
        name, text = self.names[row], self.texts[row]
        return f"{name}: {text[:80]!r}" if isinstance(text, str) else name


class Embedding:
    """An encoder at work: pieces in, checked batches of vectors out."""

    def __init__(self, encoder: Encoder, batch_tokens: int, tell: Tell) -> None:
        self.encoder = encoder
        self.identity = encoder.identity
        self.batches = Batches(batch_tokens, tell)

    def run(self, piece: TextPiece) -> Iterator[Computed]:
        """The vectors of a piece, batch by batch."""
        encoder = self.encoder
        inputs = encoder.inputs(piece.texts, piece.form)
        seen = None if piece.shown is None else inputs.seen(piece.shown)
        if isinstance(encoder, StreamingEncoder):
            outputs = encoder.stream(inputs)
        else:
            encode = partial(cast("BatchEncoder", encoder).encode, inputs)
            outputs = self.batches.run(inputs.tokens, encode, piece.names.__getitem__)
        for rows, vectors in outputs:
            piece.check(vectors, rows)
            tokens, truncated = inputs.tokens[rows], inputs.truncated[rows]
            computed = Computed(rows, vectors, tokens, truncated, seen, encoder.facts())
            yield piece.depot.leave(piece.addresses, computed) if piece.depot else computed
            seen = None
        if piece.depot:
            piece.depot.sync()


def _embedding(part: str, batch_tokens: int, stage: Any, tell: Tell) -> Embedding:
    """An encoder of a retriever or reranker at work."""
    return Embedding(stage.encoders[part], batch_tokens, tell)


@dataclass(eq=False)
class Encoding:
    """Some texts on their way to a shelf, and what the missing ones cost."""

    encoder: Encoder
    part: str
    """Which encoder of its stage that is: a side, or the one of pairs."""
    texts: Sequence[Any]
    form: Form
    name: Callable[[int], str]
    """What to call the text of a row in an error."""
    doing: str
    """What progress is called."""
    shelf: Shelf
    conditions: Conditions
    ragged: bool = False
    """Whether rows may differ in width from batch to batch, as those of token vectors do."""
    ran: dict[str, object] = field(default_factory=dict)
    """Of workers: which, and on what device and in what precision they ran."""

    def run(self) -> Encoded:
        """Make sure the shelf holds every text, and say where; each batch is kept as it finishes.

        The longest come first, so that a batch that does not fit memory shows at once.
        """
        self.addresses, self.firsts, inside = distinct(self.form.addresses(self.texts))
        firsts = [self.texts[row] for row in self.firsts]
        lengths = [len(text) if isinstance(text, str) else sum(map(len, text)) for text in firsts]
        sizes = np.array(lengths, dtype=np.int64)
        missing = np.flatnonzero(self.shelf.find(self.addresses) < 0)
        queue = missing[np.argsort(-sizes[missing], kind="stable")]
        start, done, widths = time.perf_counter(), 0, set[int]()
        try:
            for chosen, batch in self._computed(queue, sizes) if len(queue) else ():
                widths.add(batch.vectors.shape[1])
                if len(widths) > 1 and not self.ragged:
                    raise DataError(
                        f"the encoder gave vectors of {' and of '.join(map(str, sorted(widths)))} "
                        f"numbers; the batch of {self.name(self.firsts[chosen[batch.rows[0]]])} "
                        "differs from those before it."
                    )
                if len(batch.vectors):
                    self.shelf.add(self.addresses[chosen[batch.rows]], batch)
                if batch.seen is not None:
                    self.shelf.remember(self.addresses[0].tobytes(), batch.seen)
                done += len(batch.rows)
                spent = time.perf_counter() - start
                self.conditions.progress(self.doing, done, len(queue), spent)
        finally:
            self.shelf.close()
            self.shelf.refresh()
        places = self.shelf.find(self.addresses)
        if (places < 0).any():
            raise DamagedError(f"{self.shelf.folder}: what was just written cannot be read again.")
        return Encoded(self.shelf, places, inside, self._facts(places, queue))

    def _computed(self, queue: Rows, sizes: NDArray[np.int64]) -> Iterator[tuple[Rows, Computed]]:
        """The vectors of some distinct texts, batch by batch: on workers where there are any."""
        conditions, encoder = self.conditions, self.encoder
        workers, model = conditions.workers, conditions.loadable
        if isinstance(encoder, StreamingEncoder) or workers is None or model is None:
            embedding = Embedding(encoder, conditions.batch_tokens, conditions.tell)
            whole = isinstance(encoder, StreamingEncoder)
            for chosen in [queue] if whole else pieces(queue, sizes):
                for batch in embedding.run(self._piece(chosen)):
                    yield chosen, batch
            return
        self.ran["engine"] = workers.name
        opener = partial(_embedding, self.part, conditions.batch_tokens)
        source = replace(model, part=self.part, opener=opener, identity=encoder.identity)
        parts = pieces(queue, sizes)
        ready = ((chosen, self._piece(chosen, self.shelf.depot)) for chosen in parts)
        for chosen, batch in workers.each(source, Embedding.run, ready):
            self.ran |= {key: batch.facts[key] for key in ("device", "dtype") if key in batch.facts}
            yield chosen, batch

    def _piece(self, chosen: Rows, depot: Depot | None = None) -> TextPiece:
        rows = self.firsts[chosen].tolist()
        return TextPiece(
            texts=[self.texts[row] for row in rows],
            names=[self.name(row) for row in rows],
            form=self.form,
            addresses=self.addresses[chosen],
            depot=depot,
            shown=rows.index(0) if 0 in rows else None,
        )

    def _facts(self, places: Rows, computed: Rows) -> dict[str, object]:
        """For the record, once everything is on the shelf; `computed` were not there before."""
        tokens, truncated = self.shelf.tokens(places)
        facts: dict[str, object] = {
            "texts": len(self.texts),
            "distinct": len(places),
            "tokens": int(tokens.sum()) or None,
            "truncated": round(float(truncated.mean()), 6) if tokens.any() else None,
            "reused": len(places) - len(computed),
            "encoded_tokens": int(tokens[computed].sum()) or None,
            **self.ran,
        }
        if len(places):
            seen = self.shelf.seen(self.addresses[0].tobytes())
            facts["first"] = seen or TextInputs.of(self.texts[:1], self.form).seen(0)
        if isinstance(self.encoder, StreamingEncoder):
            facts |= self.encoder.bill()
        return facts


def costs(facts: Mapping[str, object]) -> dict[str, object]:
    """What was really encoded, over all sides: texts, tokens and a server's bill where known."""
    sides = [side for side in facts.values() if isinstance(side, Mapping)]
    tokens = sum(side.get("billed_tokens", side.get("encoded_tokens")) or 0 for side in sides)
    reused = sum(side["reused"] for side in sides if "reused" in side)
    texts = sum(side["distinct"] for side in sides if "reused" in side) - reused
    total: dict[str, object] = {"texts": texts, "tokens": tokens or None, "cached": reused}
    for name in ("calls", "money"):
        bills = [side[name] for side in sides if side.get(name) is not None]
        total |= {name: sum(bills)} if bills else {}
    return total


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vectors at length 1; zero vectors stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    norms[norms == 0] = 1
    units: NDArray[np.float32] = vectors / norms
    return units
