"""An encoder's entry as typed values: read from the registry's fields, checked word by word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, cast, get_args

from r2med.errors import UsageError, nearest

Library = Literal["auto", "transformers", "sentence-transformers", "method", "static"]
Pooling = Literal["model", "cls", "mean", "last"]
Attention = Literal["model", "bidirectional"]
Precision = Literal["auto", "float32", "float16", "bfloat16"]
Similarity = Literal["cosine", "dot"]
Storage = Literal["float32", "float16"]
Generated = Literal["plain", "query"]


@dataclass(frozen=True)
class Settings:
    """All that an entry of the dense engine may say; encoders.toml documents each field."""

    library: Library
    checkpoint: str
    query_checkpoint: str
    document_checkpoint: str
    revision: str
    pooling: Pooling
    pool_instruction: bool
    attention: Attention
    normalize: bool
    append_eos: bool
    max_length: int
    query_max_length: int
    document_max_length: int
    document_pair: bool
    query_instruction: str
    document_instruction: str
    query_prompt: str
    document_prompt: str
    generated: Generated
    kind: str
    purpose: str
    dtype: Precision
    autocast: bool
    similarity: Similarity
    storage: Storage
    dimensions: int

    @classmethod
    def read(cls, values: Mapping[str, object]) -> Settings:
        """From the registry's fields; a word that is none of the allowed ones is a UsageError."""
        known = {field.name for field in fields(cls)}
        settings = cls(**cast("dict[str, Any]", {k: v for k, v in values.items() if k in known}))
        for name, allowed in _CHOICES.items():
            value = getattr(settings, name)
            if value not in allowed:
                raise UsageError(f"{name}={value} is not known. {nearest(str(value), allowed)}")
        settings._check_numbers()
        return settings

    def _check_numbers(self) -> None:
        for name in ("max_length", "query_max_length", "document_max_length", "dimensions"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name}={getattr(self, name)}: expected 0 or more.")

    def refuse_without_effect(self, encoder: str, fixed: Mapping[str, tuple[object, ...]]) -> None:
        """A UsageError for a setting that an encoder cannot follow; `fixed` says what it has."""
        for name, possible in fixed.items():
            value = getattr(self, name)
            if value not in possible:
                had = " or ".join(f"{name}={_written(told)}" for told in possible)
                raise UsageError(
                    f"{name}={_written(value)} has no effect on {encoder}, which has {had}."
                )

    def checkpoints(self) -> tuple[str, str]:
        """Of the query and the document side."""
        query = self.query_checkpoint or self.checkpoint
        document = self.document_checkpoint or self.checkpoint
        if not query or not document:
            raise UsageError(
                "no checkpoint is given. Name one as in dense:PATH_OR_HUB_NAME, or with "
                "[checkpoint=...]."
            )
        return query, document


def _written(value: object) -> str:
    """As an option has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "library": get_args(Library),
    "pooling": get_args(Pooling),
    "attention": get_args(Attention),
    "dtype": get_args(Precision),
    "similarity": get_args(Similarity),
    "storage": get_args(Storage),
    "generated": get_args(Generated),
}
