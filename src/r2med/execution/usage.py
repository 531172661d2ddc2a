"""The usage of one step of a stage: texts, tokens, calls, money and request times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The usage of one step of a stage; an unknown figure is None, never zero."""

    texts: int | None = None
    tokens: int | None = None
    calls: int | None = None
    money: float | None = None
    """US dollars; None if no price is known."""
    cached: int | None = None
    """Texts, pairs or calls that a cache answered. They are not counted in `texts`, `tokens`,
    `calls` and `money`."""
    cached_tokens: int | None = None
    """Tokens that the cached answers of language models used when they were made."""
    cached_money: float | None = None
    answer_seconds: float | None = None
    """Wall time of the requests to language models; a cached answer counts its original time."""
    request_p50: float | None = None
    """Median seconds of one request, from sending it to the last byte of the answer."""
    request_p95: float | None = None
    """95th percentile of the seconds of one request."""

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Usage:
        """Return the usage figures among the facts of a stage."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: facts[name] for name in names if _is_number(facts.get(name))})

    def __add__(self, right: Usage) -> Usage:
        """Add the figures of two steps; of their request times, the longer ones are kept."""
        total: dict[str, Any] = {}
        for field in fields(Usage):
            values = [getattr(usage, field.name) for usage in (self, right)]
            numbers = [value for value in values if value is not None]
            combine = max if field.name.startswith("request_") else sum
            total[field.name] = combine(numbers) if numbers else None
        return Usage(**total)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
