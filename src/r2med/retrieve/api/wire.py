"""The embeddings format that OpenAI-compatible servers and Voyage share."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.remote.spending import tokens_of
from r2med.retrieve.api.settings import ApiSettings
from r2med.retrieve.dense.form import Side

PATH = "embeddings"


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
        except (TypeError, ValueError):
            raise ValueError("an embedding is not a list of numbers") from None
    if vector.ndim != 1 or not vector.size:
        raise ValueError("an embedding is empty or not a list of numbers")
    return vector
