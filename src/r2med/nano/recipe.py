"""The settings of a Nano task; the defaults are the published ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from r2med.errors import UsageError, nearest

Fill = Literal["source", "random", "hard"]
FILLS: tuple[Fill, ...] = get_args(Fill)
#: The seed of the published safeguard, used wherever chance is asked for.
SEED = 20260524


@dataclass(frozen=True)
class Recipe:
    """How many queries and documents, and where the documents nobody judged come from."""

    queries: int = 200
    documents: int = 10_000
    fill: Fill = "source"
    """`source`: the head of the corpus, as published; `random`: by a seeded hash of the id;
    `hard`: what a retriever ranks highest for the queries."""
    seed: int = SEED
    """Decides the random fill; the others have no chance in them."""
    hard_from: str = "bm25-nano"
    """The system whose rankings give the hard fill."""
    positives_cap: int | None = None
    """At most so many positives a query; the published tasks have no such limit."""

    def __post_init__(self) -> None:
        """Refuse what no pool can be made with."""
        for name in ("queries", "documents"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name} {getattr(self, name)}: expected a number from 1.")
        if self.fill not in FILLS:
            raise UsageError(f"--fill {self.fill!r} is not known. {nearest(self.fill, FILLS)}")
        if self.positives_cap is not None and self.positives_cap < 1:
            raise UsageError(f"--positives-cap {self.positives_cap}: expected a number from 1.")
