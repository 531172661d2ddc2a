"""Texts are cut by the vendor's own tokens, and only when they may be too long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from r2med.errors import MissingError
from r2med.models.encoding import Form, TextInputs
from r2med.remote.budget import Budget
from r2med.retrieve.api import ApiEncoder
from r2med.retrieve.api import load_truncate as load
from r2med.systems.build import read_settings
from r2med.systems.registry import entries


def worded(texts: list[str], form: Form, *, quoted: bool, tokenizer: str) -> TextInputs:
    options = {"quoted": str(quoted).lower(), "tokenizer": tokenizer}
    settings: Any = read_settings(entries()["openai"].override(options))
    return ApiEncoder(settings, "query", Budget()).inputs(texts, form)


@pytest.fixture(autouse=True)
def no_tokenizer_of_another_test() -> None:
    load.cache_clear()


@pytest.fixture
def words(tmp_path: Path) -> str:
    """A tokenizer whose tokens are words."""
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)


def test_a_long_text_is_cut_at_a_token(words: str) -> None:
    inputs = worded(["one two three four"], Form(max_length=2), quoted=False, tokenizer=words)

    assert inputs.texts == ["one two"]
    assert inputs.tokens.tolist() == [2]
    assert inputs.truncated.tolist() == [True]


def test_it_is_cut_before_it_is_quoted(words: str) -> None:
    inputs = worded(['a "b"\nc d'], Form(max_length=3), quoted=True, tokenizer=words)

    assert json.loads(inputs.texts[0]) == 'a "b" c'


def test_a_text_that_cannot_be_too_long_needs_no_tokenizer() -> None:
    inputs = worded(["é" * 40], Form(max_length=100), quoted=False, tokenizer="tiktoken:no-such")

    assert inputs.truncated.tolist() == [False]
    assert inputs.tokens.tolist() == [10]


def test_a_tokenizer_that_cannot_be_loaded_says_what_to_do() -> None:
    with pytest.raises(MissingError, match=r"tiktoken.*\nWith \[max_length=0\], texts"):
        worded(["x" * 200], Form(max_length=100), quoted=False, tokenizer="tiktoken:no-such")


def test_tiktoken_counts_and_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    single = {bytes([byte]): byte for byte in range(256)}
    pairs = single | {b"ab": 256}
    tiny = tiktoken.Encoding("tiny", pat_str=".+", mergeable_ranks=pairs, special_tokens={})
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: tiny)

    inputs = worded(["ab" * 20], Form(max_length=12), quoted=False, tokenizer="tiktoken:tiny")

    assert inputs.texts == ["ab" * 12]
    assert inputs.truncated.tolist() == [True]


def test_the_instruction_counts(words: str) -> None:
    form = Form(instruction="find: ", max_length=2)

    inputs = worded(["one two three"], form, quoted=False, tokenizer=words)

    assert inputs.texts == ["find: one"]
    assert inputs.model_input(0) == "find: one"
