"""Encode texts: the interface of an encoder, and the one function that encodes missing texts.

A reranker that scores pairs is an encoder too: its texts are pairs, its vectors have one number.
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
    """The settings besides the text itself that decide the model's input.

    The form is part of each text's address in the cache. So a vector made with one instruction is
    never used for another, and two sides with the same form share their vectors.
    """

    instruction: str = ""
    max_length: int = 0
    """Most tokens, including special tokens; 0 keeps the model's own limit."""
    pair: bool = False
    """Whether the text is the second segment of a pair whose first segment is empty."""

    def addresses(self, texts: Iterable[Any]) -> Addresses:
        """Return the address of each text in the cache: a hash of the form and the text."""
        return hash_texts(json.dumps(asdict(self), sort_keys=True).encode() + b"\0", texts)


@dataclass(frozen=True, eq=False)
class TextInputs:
    """Whole texts, for a model with its own tokenisation."""

    texts: Sequence[Any]
    form: Form
    tokens: NDArray[np.int64]
    truncated: NDArray[np.bool_]
    counted: TokenInputs | None = None
    """The texts as the model will tokenise them, if this is known before it runs."""

    @classmethod
    def of(cls, texts: Sequence[Any], form: Form, counted: TokenInputs | None = None) -> TextInputs:
        """Return texts with their token counts; without `counted`, all counts are 0."""
        if counted:
            return cls(texts, form, counted.tokens, counted.truncated, counted)
        no_tokens = np.zeros(len(texts), dtype=np.int64)
        not_truncated = np.zeros(len(texts), dtype=np.bool_)
        return cls(texts, form, no_tokens, not_truncated)

    def model_input(self, row: int) -> str:
        """Return a row's decoded tokens if they are known, else its text or pair of texts."""
        if self.counted:
            return self.counted.model_input(row)
        text = self.texts[row]
        return self.form.instruction + text if isinstance(text, str) else "\n".join(text)


Inputs: TypeAlias = TokenInputs | TextInputs
"""Texts prepared for the model, with token counts from which batches are planned."""


class Encoder(Protocol):
    """A model that turns texts into vectors; nothing is loaded before `inputs` is called."""

    @property
    def identity(self) -> Mapping[str, object] | None:
        """The settings that decide a vector, besides text and `Form`; None disables the cache."""

    def inputs(self, texts: Sequence[Any], form: Form) -> Inputs:
        """Return the texts as the model will see them; never fails on an empty text."""

    def facts(self) -> Mapping[str, object]:
        """Return the checkpoint, device and precision that were used, as JSON values."""


class BatchEncoder(Encoder, Protocol):
    """An encoder in this process, which is called with one batch after another."""

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Return one vector for each row, in one batch; the caller handles memory errors."""


@runtime_checkable
class StreamingEncoder(Encoder, Protocol):
    """An encoder behind an API, which makes its own batches and sends several at a time."""

    def stream(self, inputs: Inputs) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
        """Yield rows with their vectors as they arrive; the caller stores each before the next."""

    def bill(self) -> Mapping[str, object]:
        """Return the calls, tokens and money that were billed since the last call of `bill`."""


#: Limits of a chunk of texts: large enough for even batches, small enough to be stored soon.
_CHUNK_TEXTS, _CHUNK_CHARACTERS = 512, 1 << 18
#: Seconds after which the finished batches of a slow chunk are stored without waiting for its end.
_STORE_SECONDS = 10.0


@dataclass(frozen=True, eq=False)
class Encoded:
    """The cached vectors of some texts; equal texts share one vector."""

    cache: EmbeddingCache
    indexes: Rows
    """For each distinct text, its index in the cache."""
    distinct: Rows
    """For each text, the index of the distinct text that it equals."""
    facts: Mapping[str, object]
    usage: Usage
    """The texts, tokens and money that encoding the missing texts took."""

    def matrix(self, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """Return the vectors of the distinct texts, or of a range of them."""
        return self.cache.vectors(self.indexes[start:stop])


@dataclass(frozen=True, eq=False)
class TextChunk:
    """Some texts to encode, here or in a worker."""

    texts: Sequence[Any]
    names: Sequence[str]
    """The name of each text in error messages."""
    form: Form
    addresses: Addresses
    first: int | None
    """Index of the task's first text in this chunk, or None; its model input is recorded."""
    encoder: str
    """The name of the encoder in its stage: "query", "document" or "pair"."""
    identity: Mapping[str, object] | None
    """The identity of the encoder, which must be the same on every machine."""
    folder: Path | None
    """The folder of the embedding cache; a worker that shares the home writes there."""
    storage: Storage

    def __str__(self) -> str:
        return f"{len(self.names):,} texts from {self.names[0]} to {self.names[-1]}"


@dataclass(frozen=True, eq=False)
class EncodingOutput:
    """The outcome of encoding some or all texts of a chunk."""

    count: int
    widths: Mapping[int, str]
    """By width of a vector, the name of a text whose vector has this width."""
    texts: EncodedTexts | None
    """The texts with their vectors; None if a worker has written them to the cache."""
    model_input: str | None
    """The task's first text as the model saw it; None if it is not in this chunk."""
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
    """Return the vectors of texts: from the cache, or encoded now and stored chunk by chunk.

    The longest texts are encoded first, so that a text that does not fit in memory fails at once.

    Args:
        encoder: The model.
        texts: Texts, or pairs of texts.
        form: Instruction and limits of the model's input.
        cache: The cache of this model's vectors.
        resources: Callbacks, and the workers if there are any.
        batches: The batch size, which is lowered if memory runs out.
        name_text: Returns the name of a row's text for error messages.
        description: The description of the progress bar.
        part: The encoder of the stage: "query", "document" or "pair".
        worker_stage: How workers build the stage of the encoder; None encodes here.
        ragged: Whether vectors may differ in width, as for several vectors per text.

    """
    addresses, first_rows, distinct = distinct_addresses(form.addresses(texts))
    sizes = np.array([_size(texts[row]) for row in first_rows], dtype=np.int64)
    streams = isinstance(encoder, StreamingEncoder)
    encode_again = resources.ignores_caches and not streams
    missing = np.flatnonzero(encode_again | (cache.find(addresses) < 0))
    missing = missing[np.argsort(-sizes[missing], kind="stable")]

    def make_chunk(chosen: Rows) -> TextChunk:
        rows = first_rows[chosen].tolist()
        return TextChunk(
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

    chosen_rows = [missing] if streams else cut_chunks(missing, sizes)
    chunks = (make_chunk(chosen) for chosen in chosen_rows if len(chosen))
    report = _ProgressReport(resources, description, len(missing))
    workers = None if streams else resources.workers
    worker_facts: dict[str, object] = {}
    outputs: Iterator[EncodingOutput]
    if workers is not None and worker_stage is not None:
        tagged_chunks = ((None, chunk) for chunk in chunks)
        tagged_outputs = workers.map(worker_stage, encode_on_worker, tagged_chunks)
        outputs = (output for _, output in tagged_outputs)
        worker_facts["engine"] = workers.name
    else:
        outputs = (
            output
            for chunk in chunks
            for output in encode_chunk(encoder, batches, chunk, report.add)
        )
    widths: dict[int, str] = {}
    for output in outputs:
        widths |= output.widths
        if len(widths) > 1 and not ragged:
            last_text = list(widths.values())[-1]
            raise DataError(
                f"the encoder returned vectors of {' and of '.join(map(str, sorted(widths)))} "
                f"numbers; the batch of {last_text} differs from those before it."
            )
        if output.texts is not None:
            cache.add(output.texts)
        if output.model_input is not None:
            cache.remember_input(addresses[0].tobytes(), output.model_input)
        if worker_facts:
            for name in ("device", "dtype"):
                if name in output.facts:
                    worker_facts[name] = output.facts[name]
            report.add(output.count)
    cache.refresh()
    indexes = cache.find(addresses)
    if (indexes < 0).any():
        raise DamagedError(f"{cache.folder}: embeddings that were just written cannot be read.")
    facts = _facts_of(encoder, texts, form, cache, indexes, missing)
    if len(indexes):
        first_input = cache.model_input(addresses[0].tobytes())
        facts["first"] = first_input or TextInputs.of(texts[:1], form).model_input(0)
    return Encoded(cache, indexes, distinct, {**facts, **worker_facts}, _usage_of(facts))


def encode_chunk(
    encoder: Encoder, batches: Batches, chunk: TextChunk, count: Callable[[int], None]
) -> Iterator[EncodingOutput]:
    """Encode a chunk batch by batch; yield one output, or several if the model is slow.

    `count` is called with the number of texts of every batch.
    """
    inputs = encoder.inputs(chunk.texts, chunk.form)
    model_input = None if chunk.first is None else inputs.model_input(chunk.first)
    streams = isinstance(encoder, StreamingEncoder)
    if isinstance(encoder, StreamingEncoder):
        outputs = encoder.stream(inputs)
    else:
        run = partial(cast("BatchEncoder", encoder).encode, inputs)
        outputs = batches.run(inputs.tokens, run, chunk.names.__getitem__)
    done: list[tuple[Rows, NDArray[np.float32]]] = []
    stored_at = time.monotonic()

    def make_output() -> EncodingOutput:
        rows = np.concatenate([batch_rows for batch_rows, _ in done])
        vectors = [batch_vectors for _, batch_vectors in done]
        encoded = EncodedTexts(
            chunk.addresses[rows], vectors, inputs.tokens[rows], inputs.truncated[rows]
        )
        widths: dict[int, str] = {}
        for batch_rows, batch_vectors in done:
            widths.setdefault(batch_vectors.shape[1], chunk.names[batch_rows[0]])
        return EncodingOutput(len(rows), widths, encoded, model_input, encoder.facts())

    try:
        for rows, vectors in outputs:
            _check_vectors(vectors, rows, chunk)
            count(len(rows))
            done.append((rows, vectors))
            if streams or time.monotonic() - stored_at >= _STORE_SECONDS:
                yield make_output()
                done.clear()
                stored_at = time.monotonic()
    except Exception:
        if done:  # a failure must not lose the batches before it
            yield make_output()
        raise
    if done:
        yield make_output()


def encode_on_worker(stage: Any, chunk: TextChunk) -> Iterator[EncodingOutput]:
    """Encode a chunk in a worker, with a retriever or reranker that was built there."""
    encoder = stage.encoders[chunk.encoder]
    shares_home = stage.resources.shares_home
    if not shares_home and encoder.identity != chunk.identity:
        raise DataError(
            f"{stage.name}: on {socket.gethostname()}, this name is another model. Copy the same "
            "files to both machines, or use a folder that they share."
        )
    for output in encode_chunk(encoder, stage.batches, chunk, lambda count: None):
        if shares_home and chunk.folder is not None and output.texts is not None:
            EmbeddingCache.write(chunk.folder, chunk.storage, output.texts)
            yield replace(output, texts=None)
        else:
            yield output


def cut_chunks(rows: Rows, sizes: NDArray[np.int64]) -> Iterator[Rows]:
    """Cut rows into chunks within the limits of texts and characters, in their order.

    The cuts depend only on the texts, so batches are the same with and without workers.
    """
    while len(rows):
        characters = np.cumsum(sizes[rows[:_CHUNK_TEXTS]])
        fitting = int(np.searchsorted(characters, _CHUNK_CHARACTERS, side="right"))
        chunk, rows = np.split(rows, [max(1, fitting)])
        yield chunk


@dataclass
class _ProgressReport:
    """Reports how many of the missing texts have been encoded."""

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


def _check_vectors(vectors: NDArray[np.float32], rows: Rows, chunk: TextChunk) -> None:
    """Raise DataError unless a model returned one finite vector for each text of a batch."""

    def quote(row: int) -> str:
        name, text = chunk.names[row], chunk.texts[row]
        return f"{name}: {text[:80]!r}" if isinstance(text, str) else name

    if vectors.ndim != 2 or len(vectors) != len(rows):
        raise DataError(
            f"the encoder returned an array of shape {vectors.shape} for {len(rows)} texts, "
            f"expected ({len(rows)}, width).\nThe batch began with {quote(rows[0])}."
        )
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise DataError(
            f"the model returned NaN or infinity for {quote(rows[np.flatnonzero(~finite)[0]])}, "
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
    """Return facts about the texts for the record; `missing` are the texts encoded now."""
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
    """Return the texts and tokens that were encoded now, and the bill of a server, if any."""
    tokens = facts.get("billed_tokens", facts["encoded_tokens"])
    return Usage(
        texts=facts["distinct"] - facts["reused"],
        tokens=tokens or None,
        calls=facts.get("calls"),
        money=facts.get("money"),
        cached=facts["reused"],
    )


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vectors scaled to length 1; zero vectors stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    norms[norms == 0] = 1
    units: NDArray[np.float32] = vectors / norms
    return units
