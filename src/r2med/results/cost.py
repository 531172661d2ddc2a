"""What a result cost: seconds always, tokens and money where a stage reported them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from r2med.results.record import Result

_NOT_THE_SYSTEM = ("load", "measure")


@dataclass(frozen=True)
class Cost:
    """Totals over tasks; None is unknown, never zero."""

    seconds: float
    queries: int
    tokens: int | None
    money: float | None
    """US dollars, at the price recorded with the calls."""

    @property
    def seconds_per_query(self) -> float:
        """Indexing and encoding the corpus included, so it falls when a cache was warm."""
        return self.seconds / self.queries if self.queries else 0.0


def cost_of(results: Iterable[Result]) -> Cost:
    """Add up what the stages of some results recorded."""
    found = list(results)
    seconds = sum(
        spent
        for result in found
        for stage, spent in result.seconds.items()
        if stage not in _NOT_THE_SYSTEM
    )
    tokens, money = _reported(found, "tokens"), _reported(found, "money")
    return Cost(
        seconds=seconds,
        queries=sum(result.record.task.queries for result in found),
        tokens=None if tokens is None else int(tokens),
        money=money,
    )


def _reported(results: Iterable[Result], fact: str) -> float | None:
    values = [
        float(value)
        for result in results
        for stage in result.record.stages
        if isinstance(value := stage.get(fact), int | float)
    ]
    return sum(values) if values else None
