"""The one table of all reports: a grid that can be made to fit, and how its numbers are written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from r2med.errors import R2MedError
from r2med.report.console import visible
from r2med.tasks.registry import find_task

_PART = re.compile(r"[^\s,|+=\[\]:/]*[\s,|+=\[\]:/]*")


@dataclass(frozen=True)
class SystemName:
    """A name such as `hyde:gpt4[n=4,combine=fuse] | bm25`, broken between its parts to fit."""

    text: str
    note: str = ""
    """What follows the name and is no part of it."""

    def __str__(self) -> str:
        return self.text + self.note

    def lines(self, width: int) -> list[str]:
        """The name in lines of at most `width`; only a part that is longer is cut itself."""
        lines = [""]
        for part in _PART.findall(str(self)):
            if len(lines[-1] + part.rstrip()) > width and lines[-1]:
                lines.append("")
            lines[-1] += part
            while len(lines[-1].rstrip()) > width:
                lines[-1:] = [lines[-1][:width], lines[-1][width:]]
        return [line.rstrip() for line in lines]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(self.lines(options.max_width)))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        longest = max(len(part.rstrip()) for part in _PART.findall(str(self)))
        return Measurement(min(longest, options.max_width), min(len(str(self)), options.max_width))


Cell = str | Text | SystemName | None
"""What stands in a cell; None is shown as a dash."""


@dataclass(frozen=True)
class Column:
    """A heading, the side its cells keep to, whether they may be broken, and whether to mark the
    highest number: of those that are not dim, as they are printed.
    """

    title: str | SystemName
    right: bool = True
    fixed: bool = False
    best: bool = False


@dataclass(frozen=True)
class Grid:
    """Columns and rows of cells; `ends` are the rows that end a section.

    A row may be shorter than the columns; what stands in it then heads the rows below.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    gap: int = 2
    ends: frozenset[int] = frozenset()
    title: str = ""
    caption: str | None = None

    @property
    def width(self) -> int:
        """What it takes to show every cell on one line."""
        widths = [_cell_width(column.title) for column in self.columns]
        for row in self.rows:
            for place, cell in enumerate(row):
                widths[place] = max(widths[place], _cell_width(cell))
        return sum(widths) + self.gap * (len(widths) - 1)

    @property
    def marked(self) -> list[list[Cell]]:
        """The rows, the highest number of each `best` column in bold."""
        rows = [list(row) for row in self.rows]
        for place, column in enumerate(self.columns):
            numbers = {at: _number(row[place]) for at, row in enumerate(rows) if len(row) > place}
            known = [number for number in numbers.values() if number is not None]
            if column.best and len(known) > 1:
                for at, number in numbers.items():
                    if number == max(known):
                        rows[at][place] = Text(str(rows[at][place]), "bold")
        return rows

    def _table(self) -> Table:
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, self.gap - 1, 0, 0), show_edge=False
        )
        for column in self.columns:
            table.add_column(
                _drawn(column.title),
                justify="right" if column.right else "left",
                overflow="fold",
                no_wrap=column.fixed,
            )
        for place, row in enumerate(self.marked):
            table.add_row(*map(_drawn, row), end_section=place in self.ends)
        return table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The title and the caption may be wider than the table between them."""
        if self.title:
            yield Text(self.title, style="bold")
        yield self._table()
        if self.caption:
            yield Text(self.caption, style="dim")


class Paper(Protocol):
    """What tables are drawn on: a terminal, or a page of Markdown or LaTeX."""

    @property
    def width(self) -> int:
        """How many characters a line holds."""

    def print(self, *parts: Any, style: str | None = None) -> None:
        """Add texts or grids."""


def print_fitting(layouts: Iterable[Grid], out: Paper) -> None:
    """Print the first layout that needs no folding; the last one when none fits."""
    for grid in layouts:
        if grid.width <= out.width:
            break
    out.print(grid)


def pairs(rows: Iterable[tuple[str, str]], *, indent: int = 0) -> Table:
    """Names and values in two columns, each wrapped within its own."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(" " * indent + name), Text(value))
    return table


def snippet(text: str, width: int) -> str:
    """The head of a text on one line: as many whole words as fit `width` cells."""
    flat = visible(" ".join(text.split()))
    if cell_len(flat) <= width:
        return flat
    cut = set_cell_size(flat, width - 2).rstrip()
    whole = cut.rpartition(" ")[0] if " " in cut and not flat.startswith(cut + " ") else cut
    return whole + " …"


def task_label(name: str) -> str:
    """The R2MED task that a registered task stands for; a folder's own name as it is."""
    try:
        entry = find_task(name)
    except R2MedError:
        return name
    return entry.source if entry.name == name else name


def points(value: float | None, digits: int = 2, style: str = "") -> Text | None:
    """A score of 0 to 1, times 100."""
    return None if value is None else Text(f"{100 * value:.{digits}f}", style)


def signed(value: float | None, digits: int = 2, style: str = "") -> Text | None:
    """A difference of two scores, times 100."""
    return None if value is None else Text(f"{100 * value:+.{digits}f}", style)


def percent(share: float) -> str:
    """A share of 0 to 1 as whole per cent."""
    return f"{100 * share:.0f} %"


def p_value(value: float) -> str:
    """A p-value to three places, without its leading zero."""
    return "<.001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


def dollars(money: float | None) -> str:
    """Two decimals; small sums with as many as it takes not to read as nothing."""
    if money is None:
        return "unknown"
    return f"${money:,.2f}" if money == 0 or money >= 0.1 else f"${money:.2g}"


def megabytes(size: int) -> str:
    """A size in bytes, in millions of them."""
    return f"{size / 1e6:,.1f} MB"


def _drawn(cell: Cell) -> Text | SystemName:
    if cell is None:
        return Text("-", style="dim")
    return Text(cell) if isinstance(cell, str) else cell


def _cell_width(cell: Cell) -> int:
    return cell_len(str(_drawn(cell)))


def _number(cell: Cell) -> float | None:
    if not isinstance(cell, Text) or "dim" in str(cell.style):
        return None
    try:
        return float(cell.plain)
    except ValueError:
        return None
