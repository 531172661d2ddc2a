"""What goes to an embeddings server and what comes back.

Texts are cut at a number of tokens and quoted where the published runs did so; the JSON is what
OpenAI-compatible servers and Voyage share.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.errors import MissingError
from r2med.remote.budget import tokens_of
from r2med.retrieve.api.settings import ApiSettings
from r2med.retrieve.dense.embed import Form, Side

PATH = "embeddings"
#: A text of no more bytes than this many below the limit needs no tokenizer: a token is a byte
#: at least, and some tokenizers add a few of their own.
_SPARE = 8

#: From a text and a number of tokens: the text's own count, and its beginning of that many.
Cut = Callable[[str, int], tuple[int, str]]


def body(settings: ApiSettings, side: Side, texts: Sequence[str]) -> dict[str, object]:
    """The JSON of a request; Voyage names the width otherwise and has no word for plain floats."""
    sent: dict[str, object] = {"model": settings.model, "input": list(texts)}
    kind = settings.input_type(side)
    if kind:
        sent["input_type"] = kind
    if settings.encoding_format == "base64" or not kind:
        sent["encoding_format"] = settings.encoding_format
    if settings.output_dimensions:
        sent["output_dimension" if kind else "dimensions"] = settings.output_dimensions
    return sent


def vectors(value: dict[str, Any], count: int) -> NDArray[np.float32]:
    """The vectors in the order of the texts; ValueError says what makes an answer unreadable."""
    rows = value.get("data")
    if not isinstance(rows, list) or len(rows) != count:
        found = len(rows) if isinstance(rows, list) else "no"
        raise ValueError(f"it holds {found} embeddings for {count} texts")
    matrix: list[NDArray[np.float32] | None] = [None] * count
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ValueError("an embedding is not an object")
        index = row.get("index", place)
        if not isinstance(index, int) or not 0 <= index < count or matrix[index] is not None:
            raise ValueError(f"it holds an embedding for place {index!r} of {count}")
        matrix[index] = _vector(row.get("embedding"))
    found_rows = [row for row in matrix if row is not None]
    if len({row.shape for row in found_rows}) != 1:
        raise ValueError("its embeddings differ in width")
    return np.stack(found_rows)


def billed(value: dict[str, Any], texts: Sequence[str]) -> int:
    """Tokens as the server counted them, or about as many."""
    usage = value.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    for name in ("total_tokens", "prompt_tokens"):
        if isinstance(counts.get(name), int):
            return int(counts[name])
    return sum(tokens_of(text) for text in texts)


def _vector(embedding: object) -> NDArray[np.float32]:
    if isinstance(embedding, str):
        try:
            vector = np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
        except (binascii.Error, ValueError):
            raise ValueError("an embedding is not base64 of float32") from None
    else:
        try:
            vector = np.array(embedding, dtype=np.float32)
        except (TypeError, ValueError, OverflowError):
            raise ValueError("an embedding is not a list of numbers") from None
    if vector.ndim != 1 or not vector.size:
        raise ValueError("an embedding is empty or not a list of numbers")
    return vector


@dataclass(frozen=True, eq=False)
class ApiInputs:
    """Texts ready to be sent."""

    sent: Sequence[str]
    tokens: NDArray[np.int64]
    """Counted where a text had to be measured, a quarter of the characters elsewhere."""
    truncated: NDArray[np.bool_]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """What a request may hold is counted in tokens."""
        return self.tokens

    def texts(self, rows: NDArray[np.int64]) -> list[str]:
        """Some of the texts, as they are sent."""
        return [self.sent[row] for row in rows.tolist()]

    def seen(self, row: int) -> str:
        """What is sent, character by character."""
        return self.sent[row]


def worded(texts: Sequence[str], form: Form, *, quoted: bool, tokenizer: str) -> ApiInputs:
    """Put the instruction before each text, cut it, then quote it; an empty one is a space."""
    sent, tokens, truncated = [], [], []
    for text in texts:
        whole = form.instruction + text
        kept, count = whole, tokens_of(whole)
        limit = form.max_length
        if limit and len(whole.encode("utf-8", "surrogatepass")) > limit - _SPARE:
            count, kept = load(tokenizer)(whole, limit)
            truncated.append(count > limit)
            count = min(count, limit)
        else:
            truncated.append(False)
        tokens.append(count)
        sent.append(json.dumps(kept.replace("\n", " ")) if quoted else kept or " ")
    return ApiInputs(sent, np.array(tokens, np.int64), np.array(truncated, np.bool_))


@cache
def load(tokenizer: str) -> Cut:
    """The function that counts and cuts; its vocabulary is fetched once by its own library."""
    kind, _, name = tokenizer.rpartition(":")
    return _tiktoken(name) if kind == "tiktoken" else _tokenizers(tokenizer)


def _tiktoken(name: str) -> Cut:
    try:
        import tiktoken

        encoding = tiktoken.get_encoding(name)
    except Exception as problem:
        raise _missing("tiktoken", name, problem) from None

    def cut(text: str, limit: int) -> tuple[int, str]:
        ids = encoding.encode(text, disallowed_special=())
        return len(ids), text if len(ids) <= limit else encoding.decode(ids[:limit])

    return cut


def _tokenizers(name: str) -> Cut:
    try:
        from tokenizers import Tokenizer  # type: ignore[import-untyped, unused-ignore]

        own = Path(name).is_file()
        tokenizer = Tokenizer.from_file(name) if own else Tokenizer.from_pretrained(name)
    except Exception as problem:
        raise _missing("tokenizers", name, problem) from None
    tokenizer.no_truncation()

    def cut(text: str, limit: int) -> tuple[int, str]:
        encoded = tokenizer.encode(text, add_special_tokens=False)
        count = len(encoded.ids)
        return count, text if count <= limit else text[: encoded.offsets[limit - 1][1]]

    return cut


def _missing(library: str, name: str, problem: Exception) -> MissingError:
    if isinstance(problem, ImportError):
        why = f"{library} is not installed: pip install 'r2med[api]'"
    else:
        why = f"{library} cannot load {name} ({type(problem).__name__}); it is fetched once, online"
    return MissingError(
        f"a text may be longer than the encoder takes, and {why}.\n"
        "[max_length=0] sends texts whole and leaves it to the server."
    )
