"""WordLlama's weights, read without its library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import r2med
from r2med.errors import DataError, UsageError
from r2med.execution.resources import Resources
from r2med.models.encoding import Form
from r2med.retrieve.dense.retriever import Settings
from r2med.retrieve.dense.static import build
from r2med.settings import parse_settings
from r2med.systems.registry import entries
from tests.retrieve.small_task import own_task

pytest.importorskip("tokenizers")
wordllama = pytest.importorskip("wordllama")
TEXTS = ["acute heart failure", "", "Naïve β-blocker ≥ 5 mg", "a b " * 300]


def test_vectors_equal_those_of_the_wordllama_library() -> None:
    settings = parse_settings(Settings, entries()["wordllama"].fields)
    encoder = build(settings.checkpoint, settings, Resources())
    folder = Path(wordllama.__file__).parent
    theirs = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)

    inputs = encoder.inputs(TEXTS, Form())
    vectors = encoder.encode(inputs, np.arange(len(TEXTS)))

    np.testing.assert_allclose(vectors, theirs.embed(TEXTS), atol=1e-5)


def test_an_empty_text_is_the_zero_vector() -> None:
    settings = parse_settings(Settings, entries()["wordllama"].fields)
    encoder = build(settings.checkpoint, settings, Resources())

    assert not encoder.encode(encoder.inputs(["", ""], Form()), np.arange(2)).any()


def test_wordllama_ranks_by_meaning_and_says_what_it_saw() -> None:
    result = r2med.evaluate("wordllama", own_task())

    assert result.run.ranking("q2")[0][0] == "d1"
    facts = result.record.facts["wordllama"]
    assert facts["documents"]["first"] == "insulin therapy and dose"
    assert facts["queries"]["truncated"] == 0


def test_a_folder_that_is_no_static_model_is_told_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    settings = parse_settings(Settings, entries()["wordllama"].fields)
    encoder = build(str(tmp_path), settings, Resources())

    with pytest.raises(DataError, match=r"tokenizer\.json: cannot be loaded .*No such file"):
        encoder.inputs(["a"], Form())


@pytest.mark.parametrize(
    "option", ["pooling=cls", "attention=bidirectional", "append_eos=true", "dtype=float16"]
)
def test_an_option_without_effect_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match=f"{option} has no effect on a static encoder, which has"):
        r2med.evaluate(f"wordllama[{option}]", own_task())


def test_an_option_that_repeats_what_the_encoder_does_is_accepted() -> None:
    plain, repeated = r2med.evaluate_all(["wordllama", "wordllama[pooling=mean]"], own_task())

    assert plain.metrics == repeated.metrics


def test_more_dimensions_than_the_vectors_have_are_refused() -> None:
    with pytest.raises(UsageError, match="dimensions=9999: the encoder's vectors have 256 numbers"):
        r2med.evaluate("wordllama[dimensions=9999]", own_task())


def test_files_that_are_damaged_are_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    (tmp_path / "model.safetensors").write_bytes(b"short")
    settings = parse_settings(Settings, entries()["wordllama"].fields)
    encoder = build(str(tmp_path), settings, Resources())

    with pytest.raises(DataError, match=r"tokenizer\.json: cannot be loaded"):
        encoder.inputs(["a"], Form())
    with pytest.raises(DataError, match=r"model\.safetensors: cannot be loaded"):
        _ = encoder._table  # type: ignore[attr-defined]
