"""How many trials of each kind ran, for the table at the end."""

from __future__ import annotations

from collections import Counter

COUNTS: Counter[str] = Counter()


def counted(kind: str, number: int = 1) -> None:
    """Note that so many trials of a kind held."""
    COUNTS[kind] += number
