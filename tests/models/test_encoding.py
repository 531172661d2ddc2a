"""The encoding loop, driven by small encoders whose every call is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from r2med.errors import DataError, MissingError
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.models import encoding
from r2med.models.batching import Batches
from r2med.models.embedding_cache import EmbeddingCache
from r2med.models.encoding import Encoded, Form, Inputs, TextInputs


@dataclass
class Counting:
    """Encodes a text as its length and number of words, and remembers its batches."""

    memory: int = 10**9
    batches: list[list[str]] = field(default_factory=list)
    identity: Mapping[str, object] | None = None

    def inputs(self, texts: Sequence[str], form: Form) -> TextInputs:
        """A word is a token."""
        words = np.array([len(text.split()) for text in texts], dtype=np.int64)
        return TextInputs(texts, form, words, words < 0)

    def encode(self, inputs: Inputs, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        assert isinstance(inputs, TextInputs)
        if len(rows) * inputs.tokens[rows].max() > self.memory:
            raise RuntimeError("CUDA out of memory. Tried to allocate too much.")
        texts = [inputs.texts[row] for row in rows]
        self.batches.append(texts)
        return np.array([[len(text), len(text.split())] for text in texts], dtype=np.float32)

    def facts(self) -> Mapping[str, object]:
        return {}


def encode(
    encoder: Counting,
    texts: Sequence[str],
    cache: EmbeddingCache | None = None,
    resources: Resources | None = None,
    form: Form | None = None,
) -> Encoded:
    resources = resources or Resources()
    return encoding.encode(
        encoder,
        texts,
        form or Form(),
        cache or EmbeddingCache(),
        resources,
        batches=Batches(resources.options.batch_tokens, resources.warn),
        name_text="document d{}".format,
        description="encoding documents",
        part="document",
    )


TEXTS = ["one", "two words", "", "three words here", "two words", "a b c d e f g h"]


def test_every_text_gets_its_own_vector() -> None:
    done = encode(Counting(), TEXTS, EmbeddingCache(), Resources(RunOptions(batch_tokens=8)))

    assert done.matrix()[done.distinct][:, 0].tolist() == [len(text) for text in TEXTS]


def test_equal_texts_are_encoded_once() -> None:
    encoder = Counting()

    done = encode(encoder, TEXTS, EmbeddingCache(), Resources())

    assert sum(batch.count("two words") for batch in encoder.batches) == 1
    assert (done.facts["texts"], done.facts["distinct"], done.facts["reused"]) == (6, 5, 0)


def test_what_is_on_the_cache_is_not_encoded_again() -> None:
    cache, encoder = EmbeddingCache(), Counting()
    encode(Counting(), TEXTS[:3], cache, Resources())

    done = encode(encoder, TEXTS, cache, Resources())

    assert sorted(text for batch in encoder.batches for text in batch) == [
        "a b c d e f g h",
        "three words here",
    ]
    assert done.facts["reused"] == 3


def test_batches_keep_to_the_budget_longest_first() -> None:
    encoder = Counting()

    encode(encoder, TEXTS, EmbeddingCache(), Resources(RunOptions(batch_tokens=8)))

    sizes = [max(len(text.split()) for text in batch) for batch in encoder.batches]
    assert sizes == sorted(sizes, reverse=True)
    assert all(
        len(batch) == 1 or len(batch) * size <= 8
        for batch, size in zip(encoder.batches, sizes, strict=True)
    )


def test_a_batch_that_does_not_fit_is_halved_and_told() -> None:
    encoder = Counting(memory=10)
    told: list[str] = []
    texts = [f"w{number} x y z" for number in range(16)]

    done = encode(encoder, texts, EmbeddingCache(), Resources(warn=told.append))

    assert max(map(len, encoder.batches)) == 2
    assert len(done.indexes) == 16
    assert "out of memory at 16 texts" in told[0]


def test_one_text_that_does_not_fit_is_named() -> None:
    with pytest.raises(MissingError, match=r"document d5: not enough memory .* 8 tokens"):
        encode(Counting(memory=7), TEXTS, EmbeddingCache(), Resources())


def test_an_error_that_is_not_memory_passes_through() -> None:
    class Broken(Counting):
        def encode(self, inputs: Inputs, rows: NDArray[np.int64]) -> NDArray[np.float32]:
            raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        encode(Broken(), TEXTS, EmbeddingCache(), Resources())


def test_a_vector_that_is_no_number_names_its_text() -> None:
    class Poisoned(Counting):
        def encode(self, inputs: Inputs, rows: NDArray[np.int64]) -> NDArray[np.float32]:
            vectors = super().encode(inputs, rows)
            vectors[[len(inputs.texts[row]) == 3 for row in rows], 0] = np.nan  # type: ignore[index]
            return vectors

    with pytest.raises(DataError, match="NaN or infinity for document d0: 'one'"):
        encode(Poisoned(), TEXTS, EmbeddingCache(), Resources())


@pytest.mark.parametrize("shape", [(3,), (1, 2), (2, 2, 2)])
def test_an_output_of_another_shape_names_the_first_text(shape: tuple[int, ...]) -> None:
    class Misshapen(Counting):
        def encode(self, inputs: Inputs, rows: NDArray[np.int64]) -> NDArray[np.float32]:
            return np.zeros(shape, dtype=np.float32)

    with pytest.raises(DataError, match=r"shape .* for 2 texts.*\n.*document d1: 'second one'"):
        encode(Misshapen(), ["first", "second one"], EmbeddingCache(), Resources())


def test_progress_counts_every_text_once() -> None:
    heard: list[tuple[str, int, int]] = []

    def progress(what: str, done: int, total: int, seconds: float) -> None:
        heard.append((what, done, total))

    encode(
        Counting(),
        TEXTS,
        EmbeddingCache(),
        Resources(RunOptions(batch_tokens=4), progress=progress),
    )

    assert [done for _, done, _ in heard] == sorted({done for _, done, _ in heard})
    assert heard[-1][1:] == (5, 5)
    assert heard[-1][0] in ("encoding queries", "encoding documents")


def test_a_failed_run_keeps_the_batches_it_finished() -> None:
    class Failing(Counting):
        def encode(self, inputs: Inputs, rows: NDArray[np.int64]) -> NDArray[np.float32]:
            if len(self.batches) == 2:
                raise RuntimeError("power cut")
            return super().encode(inputs, rows)

    cache, rest = EmbeddingCache(), Counting()
    with pytest.raises(RuntimeError):
        encode(Failing(), TEXTS, cache, Resources(RunOptions(batch_tokens=3)))

    encode(rest, TEXTS, cache, Resources(RunOptions(batch_tokens=3)))

    assert sum(map(len, rest.batches)) == 3


def test_the_first_text_is_shown_as_the_model_saw_it() -> None:
    done = encode(Counting(), TEXTS, form=Form(instruction="Query: "))

    assert done.facts["first"] == "Query: one"


def test_batches_of_a_slow_model_are_stored_before_the_piece_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "_STORE_SECONDS", 0.0)
    cache = EmbeddingCache(folder=tmp_path)

    encode(Counting(), TEXTS, cache, Resources(RunOptions(batch_tokens=3)))

    assert len(list(tmp_path.glob("*.arrow"))) > 1
    assert (EmbeddingCache(folder=tmp_path).find(Form().addresses(TEXTS)) >= 0).all()
