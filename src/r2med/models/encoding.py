"""Encode texts: what an encoder provides, and the one function that encodes what is not cached.

A reranker that scores pairs is an encoder too: its texts are pairs, its vectors one number.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DamagedError, DataError
from r2med.execution.resources import Resources
from r2med.execution.usage import Usage
from r2med.execution.workers import StageSpec
from r2med.models.batching import Batches, TokenInputs
from r2med.models.embedding_cache import (
    Addresses,
    EmbeddingCache,
    EncodedTexts,
    Rows,
    Storage,
    distinct_addresses,
    hash_texts,
)

Side = Literal["query", "document"]
SIDES: tuple[Side, Side] = ("query", "document")


@dataclass(frozen=True)
class Form:
    """Everything besides the text itself that decides the model's input.

    It is part of each text's address in the cache, so a vector made with one instruction is never
    used for another, and sides with the same form share their vectors.
    """

    instruction: str = ""
    max_length: int = 0
    """Tokens, special ones included; 0 leaves the model's own limit."""
    pair: bool = False
    """Whether the text is the second segment after an empty first one."""

    def addresses(self, texts: Iterable[Any]) -> Addresses:
        """Return the address of each text in the cache: a hash of the form and the text."""
        return hash_texts(json.dumps(asdict(self), sort_keys=True).encode() + b"\0", texts)


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
    """An encoder that makes its own batches, several at a time: one behind an API."""

    def stream(self, inputs: Inputs) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
        """Rows of the inputs with their vectors, as they arrive; each is stored before the next."""

    def bill(self) -> Mapping[str, object]:
        """What was billed since this was last asked."""


#: The most that is given to a model at a time: enough for even batches, soon done and stored.
_PIECE_TEXTS, _PIECE_CHARACTERS = 512, 1 << 18
#: Seconds after which the finished batches of a slow piece are stored without waiting for its end.
_STORE_SECONDS = 10.0


@dataclass(frozen=True, eq=False)
class Encoded:
    """The cached vectors of some texts; equal texts share one."""

    cache: EmbeddingCache
    indexes: Rows
    """For each distinct text, its index in the cache."""
    distinct: Rows
    """For each text, which of the distinct ones it is."""
    facts: Mapping[str, object]
    usage: Usage
    """What encoding the missing texts used."""

    def matrix(self, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """Return the vectors of the distinct texts, or of a range of them."""
        return self.cache.vectors(self.indexes[start:stop])


@dataclass(frozen=True, eq=False)
class EncodingPiece:
    """Some texts to encode, here or in a worker."""

    texts: Sequence[Any]
    names: Sequence[str]
    """What to call each text in an error."""
    form: Form
    addresses: Addresses
    first: int | None
    """The index of the task's first text in this piece, which is shown as the model saw it."""
    encoder: str
    """Which encoder of its stage: a side, or "pair"."""
    identity: Mapping[str, object] | None
    """Of the encoder; it must be the same on every machine."""
    folder: Path | None
    """The folder of the embedding cache, to which a worker that shares the home writes."""
    storage: Storage

    def __str__(self) -> str:
        return f"{len(self.names):,} texts from {self.names[0]} to {self.names[-1]}"


@dataclass(frozen=True, eq=False)
class EncodingOutput:
    """Some encoded texts of a piece."""

    count: int
    widths: Mapping[int, str]
    """The widths of the vectors, each with the name of a text that has it."""
    texts: EncodedTexts | None
    """None where a worker has written them to the cache."""
    model_input: str | None
    """The task's first text as the model saw it, where this piece has it."""
    facts: Mapping[str, object]


def encode(
    encoder: Encoder,
    texts: Sequence[Any],
    form: Form,
    cache: EmbeddingCache,
    resources: Resources,
    *,
    batches: Batches,
    name_text: Callable[[int], str],
    description: str,
    part: str,
    worker_stage: StageSpec | None = None,
    ragged: bool = False,
) -> Encoded:
    """Return the vectors of texts: from the cache, or encoded now and stored piece by piece.

    The longest texts come first, so that a batch that does not fit the memory fails at once.

    Args:
        encoder: The model.
        texts: Texts, or pairs of texts.
        form: What the model is given besides the text.
        cache: Where vectors are looked up and stored.
        resources: Callbacks, and the workers if there are any.
        batches: The batch size, which encoding may lower.
        name_text: Returns what to call the text of a row in an error.
        description: What progress is called.
        part: Which encoder of its stage this is: a side, or "pair".
        worker_stage: From what workers build the stage of the encoder; None encodes here.
        ragged: Whether vectors may differ in width, as those of several vectors per text do.
    """
    addresses, first_rows, distinct = distinct_addresses(form.addresses(texts))
    sizes = np.array([_size(texts[row]) for row in first_rows], dtype=np.int64)
    streams = isinstance(encoder, StreamingEncoder)
    encode_again = resources.ignores_caches and not streams
    missing = np.flatnonzero(encode_again | (cache.find(addresses) < 0))
    missing = missing[np.argsort(-sizes[missing], kind="stable")]

    def make_piece(chosen: Rows) -> EncodingPiece:
        rows = first_rows[chosen].tolist()
        return EncodingPiece(
            texts=[texts[row] for row in rows],
            names=[name_text(row) for row in rows],
            form=form,
            addresses=addresses[chosen],
            first=rows.index(0) if 0 in rows else None,
            encoder=part,
            identity=encoder.identity,
            folder=cache.folder,
            storage=cache.storage,
        )

    chosen_rows = [missing] if streams else cut_pieces(missing, sizes)
    pieces = (make_piece(chosen) for chosen in chosen_rows if len(chosen))
    report = _ProgressReport(resources, description, len(missing))
    on_workers = resources.workers is not None and worker_stage is not None and not streams
    ran: dict[str, object] = {}
    if on_workers:
        assert resources.workers is not None and worker_stage is not None
        numbered = ((None, piece) for piece in pieces)
        outputs = (
            out for _, out in resources.workers.map(worker_stage, encode_on_worker, numbered)
        )
        ran["engine"] = resources.workers.name
    else:
        outputs = (
            output
            for piece in pieces
            for output in encode_piece(encoder, batches, piece, report.add)
        )
    widths: dict[int, str] = {}
    for output in outputs:
        widths |= output.widths
        if len(widths) > 1 and not ragged:
            *_, last = widths.values()
            raise DataError(
                f"the encoder gave vectors of {' and of '.join(map(str, sorted(widths)))} "
                f"numbers; the batch of {last} differs from those before it."
            )
        if output.texts is not None:
            cache.add(output.texts)
        if output.model_input is not None:
            cache.remember_input(addresses[0].tobytes(), output.model_input)
        if on_workers:
            ran |= {key: output.facts[key] for key in ("device", "dtype") if key in output.facts}
            report.add(output.count)
    cache.refresh()
    indexes = cache.find(addresses)
    if (indexes < 0).any():
        raise DamagedError(f"{cache.folder}: what was just written cannot be read again.")
    facts = _facts_of(encoder, texts, form, cache, indexes, missing)
    if len(indexes):
        first_input = cache.model_input(addresses[0].tobytes())
        facts["first"] = first_input or TextInputs.of(texts[:1], form).seen(0)
    return Encoded(cache, indexes, distinct, {**facts, **ran}, _usage_of(facts))


def encode_piece(
    encoder: Encoder, batches: Batches, piece: EncodingPiece, count: Callable[[int], None]
) -> Iterator[EncodingOutput]:
    """Encode a piece batch by batch; yield it whole, or in parts where the model is slow.

    `count` is called with the number of texts of every batch.
    """
    inputs = encoder.inputs(piece.texts, piece.form)
    model_input = None if piece.first is None else inputs.seen(piece.first)
    streams = isinstance(encoder, StreamingEncoder)
    if isinstance(encoder, StreamingEncoder):
        outputs = encoder.stream(inputs)
    else:
        run = partial(cast("BatchEncoder", encoder).encode, inputs)
        outputs = batches.run(inputs.tokens, run, piece.names.__getitem__)
    done: list[tuple[Rows, NDArray[np.float32]]] = []
    stored = time.monotonic()

    def finish() -> EncodingOutput:
        rows = np.concatenate([batch_rows for batch_rows, _ in done])
        vectors = [batch_vectors for _, batch_vectors in done]
        encoded = EncodedTexts(
            piece.addresses[rows], vectors, inputs.tokens[rows], inputs.truncated[rows]
        )
        widths: dict[int, str] = {}
        for batch_rows, batch_vectors in done:
            widths.setdefault(batch_vectors.shape[1], piece.names[batch_rows[0]])
        return EncodingOutput(len(rows), widths, encoded, model_input, encoder.facts())

    try:
        for rows, vectors in outputs:
            _check_vectors(vectors, rows, piece)
            count(len(rows))
            done.append((rows, vectors))
            if streams or time.monotonic() - stored >= _STORE_SECONDS:
                yield finish()
                done.clear()
                stored = time.monotonic()
    except Exception:
        if done:  # a failure must not lose the batches before it
            yield finish()
        raise
    if done:
        yield finish()


def encode_on_worker(stage: Any, piece: EncodingPiece) -> Iterator[EncodingOutput]:
    """Encode a piece in a worker, with a retriever or reranker that was built there."""
    encoder = stage.encoders[piece.encoder]
    shared = stage.resources.shares_home
    if not shared and encoder.identity != piece.identity:
        raise DataError(
            f"{stage.name}: the model of this name is another one on {socket.gethostname()}. "
            "Give both machines the same files, or name a folder that they share."
        )
    for output in encode_piece(encoder, stage.batches, piece, lambda count: None):
        if shared and piece.folder is not None and output.texts is not None:
            EmbeddingCache.write(piece.folder, piece.storage, output.texts)
            output = replace(output, texts=None)
        yield output


def cut_pieces(rows: Rows, sizes: NDArray[np.int64]) -> Iterator[Rows]:
    """Cut rows into pieces within the limits of texts and characters, in their order.

    The cuts depend only on the texts, so batches are the same wherever they run.
    """
    while len(rows):
        characters = np.cumsum(sizes[rows[:_PIECE_TEXTS]])
        fitting = int(np.searchsorted(characters, _PIECE_CHARACTERS, side="right"))
        piece, rows = np.split(rows, [max(1, fitting)])
        yield piece


@dataclass
class _ProgressReport:
    """Reports how many of the missing texts are encoded."""

    resources: Resources
    description: str
    total: int
    done: int = 0
    start: float = field(default_factory=time.perf_counter)

    def add(self, count: int) -> None:
        self.done += count
        spent = time.perf_counter() - self.start
        self.resources.progress(self.description, self.done, self.total, spent)


def _size(text: Any) -> int:
    return len(text) if isinstance(text, str) else sum(map(len, text))


def _check_vectors(vectors: NDArray[np.float32], rows: Rows, piece: EncodingPiece) -> None:
    """Raise DataError unless a model gave one finite vector for each text of a batch."""

    def quote(row: int) -> str:
        name, text = piece.names[row], piece.texts[row]
        return f"{name}: {text[:80]!r}" if isinstance(text, str) else name

    if vectors.ndim != 2 or len(vectors) != len(rows):
        raise DataError(
            f"the encoder gave an array of shape {vectors.shape} for {len(rows)} texts, "
            f"expected ({len(rows)}, width).\nThe batch began with {quote(rows[0])}."
        )
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise DataError(
            f"the model gave NaN or infinity for {quote(rows[np.flatnonzero(~finite)[0]])}, "
            "expected a finite number.\n"
            "If it runs in float16, try [dtype=float32] or [dtype=bfloat16]."
        )


def _facts_of(
    encoder: Encoder,
    texts: Sequence[Any],
    form: Form,
    cache: EmbeddingCache,
    indexes: Rows,
    missing: Rows,
) -> dict[str, Any]:
    """Return counts for the record; `missing` were encoded now."""
    tokens, truncated = cache.token_counts(indexes)
    facts: dict[str, Any] = {
        "texts": len(texts),
        "distinct": len(indexes),
        "tokens": int(tokens.sum()) or None,
        "truncated": round(float(truncated.mean()), 6) if tokens.any() else None,
        "reused": len(indexes) - len(missing),
        "encoded_tokens": int(tokens[missing].sum()) or None,
    }
    if isinstance(encoder, StreamingEncoder):
        facts |= encoder.bill()
    return facts


def _usage_of(facts: Mapping[str, Any]) -> Usage:
    """Return what was really encoded: texts, tokens, and a server's bill where there is one."""
    tokens = facts.get("billed_tokens", facts["encoded_tokens"])
    return Usage(
        texts=facts["distinct"] - facts["reused"],
        tokens=tokens or None,
        calls=facts.get("calls"),
        money=facts.get("money"),
        cached=facts["reused"],
    )


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vectors at length 1; zero vectors stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    norms[norms == 0] = 1
    units: NDArray[np.float32] = vectors / norms
    return units
