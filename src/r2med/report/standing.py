"""Rows of a leaderboard and the board they make up: plain values, for tables and exports alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from r2med.measure.intervals import Averaging, Interval
from r2med.measure.scores import Aggregates
from r2med.results.lineage import Kind
from r2med.results.published import is_micro
from r2med.tasks.registry import Suite, TaskEntry

if TYPE_CHECKING:
    from r2med.results.cost import Cost
    from r2med.results.record import Result

Origin = Literal["published", "measured"]
Bound = tuple[float, float]
BoundsOf = Callable[["Result"], Bound | None]


@dataclass(frozen=True)
class Standing:
    """One system's row; values are 0 to 1, by task."""

    system: str
    kind: Kind
    origin: Origin
    source: str
    """Where a published figure was printed; where a measured result is stored."""
    values: Mapping[str, float]
    aggregates: Aggregates
    mean: float | None
    """The mean that ranks: None when a task is missing."""
    rank: int | None = None
    interval: Interval | None = None
    ties: Bound | None = None
    """The mean with every tie resolved against the system, and for it."""
    group: str = ""
    """Letters of a measured row: rows that share one could not be separated."""
    gain: float | None = None
    gain_over: str = ""
    marks: tuple[str, ...] = ()
    cost: Cost | None = None


@dataclass(frozen=True)
class Separation:
    """The tests behind the letters: how many rows and pairs, and how many pairs differ."""

    rows: int
    pairs: int
    different: int


@dataclass(frozen=True)
class Leaderboard:
    """A ranking and what a reader must know of it."""

    suite: Suite
    metric: str
    averaging: Averaging
    tasks: tuple[TaskEntry, ...]
    rows: tuple[Standing, ...]
    notes: tuple[str, ...] = ()
    tested: Separation | None = None
    """None where no two measured rows were tested."""

    @property
    def is_micro(self) -> bool:
        """Whether the figures are over all positives at once, not means over queries."""
        return is_micro(self.suite.name, self.metric)

    @property
    def mean_title(self) -> str:
        """Which mean ranks the rows."""
        many = f"{len(self.tasks)} tasks" if len(self.tasks) > 1 else self.tasks[0].name
        if self.averaging == "task":
            return f"task mean over {many} (each task counts once)"
        if self.is_micro:
            return (
                f"micro mean over {many} (positives found / positives: each positive counts once)"
            )
        return f"query-weighted mean over {many} (each query counts once)"
