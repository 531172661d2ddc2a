"""How much a stored system can read, as its identity tells it; None where nothing is cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Limits:
    """Tokens; a text with more *words* than that was certainly cut, whatever the tokenizer."""

    query: int | None = None
    document: int | None = None
    pair: int | None = None
    """Query and document together, for a reranker."""


def limits_of(identity: Mapping[str, Any]) -> Limits:
    """The limits of the last stage that read whole texts.

    A fusion reads as much as its most patient member, and an expanded query is not the query.
    """
    if "reranker" in identity:
        return Limits(pair=_number(_flat(identity["reranker"]).get("max_length")))
    if "expander" in identity:
        return Limits(document=limits_of(identity.get("first", {})).document)
    if "members" in identity:
        members = [limits_of(member) for member in identity["members"]]
        return Limits(
            _most([each.query for each in members]), _most([each.document for each in members])
        )
    retriever = _flat(identity.get("retriever", {}))
    return Limits(_side(retriever, "query"), _side(retriever, "document"))


def _flat(built: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings, and what was read besides them, as one mapping."""
    return {**built.get("settings", {}), **built}


def _side(retriever: Mapping[str, Any], side: str) -> int | None:
    encoder = retriever.get(f"{side}_encoder") or retriever.get(side)
    own = encoder if isinstance(encoder, Mapping) else {}
    told = (
        retriever.get(f"{side}_max_length"),
        retriever.get("max_length"),
        own.get("max_length"),
        own.get("limit"),
    )
    return next((number for value in told if (number := _number(value))), None)


def _number(value: object) -> int | None:
    """A limit; 0 means that the model's own is used, which the identity does not tell."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _most(limits: list[int | None]) -> int | None:
    known = [limit for limit in limits if limit is not None]
    return max(known) if known and len(known) == len(limits) else None
