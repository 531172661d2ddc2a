"""What models would do for systems: tokens, hours, money and disk by stage, and in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from r2med.engine.estimating import Load
from r2med.report.table import Cell, Column, Grid, dollars

_DONE = {
    "documents": "encode documents",
    "queries": "encode queries",
    "generate": "generate",
    "rerank": "rerank",
}
_BASIS = (
    "Estimated from published counts and mean lengths (4 characters per token where no tokens are "
    "published). Mean lengths do not show which texts are cut at a model's limit, so real tokens "
    "are fewer where texts vary; instructions and templates of local models are not counted."
)


@dataclass(frozen=True)
class Pace:
    """How fast models run on the reader's hardware, and what an hour of it costs."""

    tokens_per_second: float
    price: float | None = None
    """US dollars per hour."""

    def hours(self, load: Load) -> float | None:
        """Of the hardware; None where somebody else's server does the work for money."""
        return None if load.bill is not None else load.tokens / self.tokens_per_second / 3600

    def money(self, load: Load) -> float | None:
        """A server's bill, or that of the hours; None where no price is known."""
        hours = self.hours(load)
        if hours is None:
            return load.bill
        return None if self.price is None else hours * self.price


def load_rows(loads: Sequence[Load], pace: Pace) -> list[dict[str, Any]]:
    """One record per task and stage, marked as estimates."""
    return [
        {**asdict(load), "hours": pace.hours(load), "money": pace.money(load), "estimated": True}
        for load in loads
    ]


def load_table(loads: Sequence[Load], pace: Pace) -> RenderableType:
    """One row per part and stage over all tasks, then the sum."""
    groups: dict[tuple[str, str], list[Load]] = {}
    for load in loads:
        groups.setdefault((load.part, load.stage), []).append(load)
    rows: list[list[Cell]] = [
        [f"{part}: {_DONE[stage]}", *_cells(group, pace)] for (part, stage), group in groups.items()
    ]
    rows.append([Text(str(cell), style="bold") for cell in ("in all", *_cells(loads, pace))])
    tasks = list(dict.fromkeys(load.task for load in loads))
    over = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    heads = ("texts", "tokens", "hours", "cost", "vectors")
    table = Grid(
        [Column("stage", right=False), *map(Column, heads)],
        rows,
        gap=1,
        ends=frozenset([len(rows) - 2]),
        title=f"{over}: an estimate, nothing is run",
    )
    price = "" if pace.price is None else f", an hour at {dollars(pace.price)}"
    notes = [_BASIS, f"Hours: {pace.tokens_per_second:,.0f} tokens per second, read or new{price}."]
    if any(load.stage == "generate" for load in loads):
        notes.append("New tokens take longer than tokens that are read: reckon them apart.")
    if any(load.vector_bytes is None for load in loads):
        notes.append(
            "Vectors: --vector-width says how many dimensions the model has; unknown for models "
            "that keep several vectors or weights per text."
        )
    return Group(table, *(Text(note, style="dim") for note in notes))


def _cells(loads: Sequence[Load], pace: Pace) -> list[str]:
    """The sums of some loads; a sum with an unknown part is unknown, hours of servers are none."""
    hours = [value for load in loads if (value := pace.hours(load)) is not None]
    money = [pace.money(load) for load in loads]
    held = [load.vector_bytes for load in loads]
    return [
        f"{sum(load.texts for load in loads):,}",
        _short(sum(load.tokens for load in loads)),
        f"{sum(hours):,.1f}" if hours else "-",
        "unknown" if None in money else dollars(sum(value or 0 for value in money)),
        "unknown" if None in held else _bytes(sum(value or 0 for value in held)),
    ]


def _short(count: float) -> str:
    for size, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.1f} {name}"
    return f"{count:.0f}"


def _bytes(count: int) -> str:
    return f"{_short(count)}B" if count else "-"
