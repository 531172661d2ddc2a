"""What a piece of work used: texts, tokens, calls, money, time of requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Usage:
    """What one step of a stage used; a figure that is not known is None, never zero."""

    texts: int | None = None
    tokens: int | None = None
    calls: int | None = None
    money: float | None = None
    """US dollars, where a price is known."""
    cached: int | None = None
    """Texts, pairs or calls that a cache answered; `texts`, `tokens`, `calls` and `money` leave
    them out."""
    cached_tokens: int | None = None
    """Tokens of the cached answers of language models when they were made."""
    cached_money: float | None = None
    answer_seconds: float | None = None
    """Wall time of the requests to language models; cached answers count as recorded."""
    request_p50: float | None = None
    """Median seconds of one request, from sending it to its last byte."""
    request_p95: float | None = None

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Usage:
        """Return the figures among the facts of a stage."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: facts[name] for name in names if _is_number(facts.get(name))})

    def __add__(self, other: Usage) -> Usage:
        """Add what is known; of times per request the longer one is kept."""
        total: dict[str, Any] = {}
        for field in fields(self):
            values = [getattr(usage, field.name) for usage in (self, other)]
            known = [value for value in values if value is not None]
            combine = max if field.name.startswith("request_") else sum
            total[field.name] = combine(known) if known else None
        return Usage(**total)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
