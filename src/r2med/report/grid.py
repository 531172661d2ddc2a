"""Grids of cells whose width is known before they are drawn, so that a table can be made to fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Column:
    """A heading and which side its cells keep to."""

    title: str
    right: bool = True


@dataclass(frozen=True)
class Grid:
    """Columns, rows of cells, the rows that end a section, and a remark below."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Text]]
    gap: int = 2
    ends: frozenset[int] = frozenset()
    caption: str | None = None

    @property
    def width(self) -> int:
        """What it takes to show every cell on one line."""
        widths = [cell_len(column.title) for column in self.columns]
        for row in self.rows:
            widths = [max(width, text.cell_len) for width, text in zip(widths, row, strict=True)]
        return sum(widths) + self.gap * (len(widths) - 1)

    def table(self) -> Table:
        """The grid as rich draws it."""
        table = Table(
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, self.gap - 1, 0, 0),
            show_edge=False,
            caption=self.caption,
            caption_justify="left",
            caption_style="dim",
        )
        for column in self.columns:
            side = "right" if column.right else "left"
            table.add_column(Text(column.title), justify=side, overflow="fold")  # type: ignore[arg-type]
        for place, row in enumerate(self.rows):
            table.add_row(*row, end_section=place in self.ends)
        return table


def print_fitting(layouts: Iterable[Grid], out: Console) -> None:
    """Print the first layout that needs no folding; the last one when none fits."""
    for grid in layouts:
        if grid.width <= out.width:
            break
    out.print(grid.table())
