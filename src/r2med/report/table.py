"""The one table of all reports: a grid that can be made to fit, and how its numbers are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, Protocol

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from r2med.report.console import visible
from r2med.tasks.registry import registered_task

if TYPE_CHECKING:
    from r2med.tasks.task import Task

#: Where a name may be broken, the best places first.
_BREAKS = tuple(
    re.compile(f"[^{marks}]*[{marks}]*[|+]?\\s*") for marks in (r"|+", r"\s,", r"\[:/", r"=_.-")
)
#: A column of names is at least this wide before a layout with fewer columns is taken.
_NAME_WIDTH = 24
#: A name that heads a column of figures takes no more than this on a line.
_HEADING = 16
#: Short forms of the eight tasks, for columns of four characters.
SHORT_NAMES = {
    "Biology": "Biol",
    "Bioinformatics": "Binf",
    "Medical-Sciences": "MedS",
    "MedXpertQA-Exam": "Exam",
    "MedQA-Diag": "Diag",
    "PMC-Treatment": "Trea",
    "PMC-Clinical": "PMC",
    "IIYi-Clinical": "IIYi",
}


@dataclass(frozen=True)
class SystemName:
    """A name such as `hyde:gpt4[n=4,combine=fuse] | bm25`, broken between its parts to fit."""

    text: str
    note: str = ""
    """What follows the name and is no part of it."""

    def __str__(self) -> str:
        return self.text + self.note

    def lines(self, width: int) -> list[str]:
        """The name in lines of at most `width`; a part that is longer is broken at its hyphens."""
        lines = [""]
        for part in self.parts(width):
            if len(lines[-1] + part.rstrip()) > width and lines[-1]:
                lines.append("")
            lines[-1] += part
            while len(lines[-1].rstrip()) > width:
                lines[-1:] = [lines[-1][:width], lines[-1][width:]]
        return [line.rstrip() for line in lines]

    def parts(self, width: int, text: str | None = None, level: int = 0) -> Iterator[str]:
        """The pieces between which it may be broken, as few as `width` allows."""
        whole = str(self) if text is None else text
        if len(whole.rstrip()) <= width or level == len(_BREAKS):
            yield whole
            return
        for part in _BREAKS[level].findall(whole):
            yield from self.parts(width, part, level + 1)


Cell = str | Text | SystemName | None
"""What stands in a cell; None is shown as a dash."""


@dataclass(frozen=True)
class Column:
    """A heading and how its cells are set."""

    title: str | SystemName
    right: bool = True
    fixed: bool = False
    """Whether cells are never broken over lines; those on the right never are."""
    best: bool = False
    """Whether the highest number is bold: of those that are not dim, as they are printed."""
    cell: Callable[[Any], Cell] = str
    """How a value fills its cell, for `Grid.of`."""


@dataclass(frozen=True)
class Grid:
    """Columns and rows of cells; `ends` are the rows that end a section.

    A row may be shorter than the columns; what stands in it then heads the rows below. Columns
    that a terminal has no room for stand in a second table below the first, never cut.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    gap: int = 2
    ends: frozenset[int] = frozenset()
    title: str = ""
    caption: str | None = None

    @classmethod
    def of(cls, columns: Sequence[Column], values: Iterable[Any], **layout: Any) -> Grid:
        """One row per value, filled as the columns say."""
        return cls(columns, [[c.cell(value) for c in columns] for value in values], **layout)

    @property
    def width(self) -> int:
        """What every cell takes on one line, but for long names, which may be broken."""
        return sum(comfortable for _, comfortable, _ in self._sizes) + self._gaps

    @cached_property
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

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The title and the caption may be wider than the table between them."""
        if self.title:
            yield Text(self.title, style="bold")
        for place, block in enumerate(self._blocks(options.max_width)):
            if place:
                yield Text()
            yield block._table(options.max_width)
        if self.caption:
            yield Text(self.caption, style="dim")

    @property
    def _gaps(self) -> int:
        return self.gap * (len(self.columns) - 1)

    @cached_property
    def _sizes(self) -> list[tuple[int, int, int]]:
        """Three widths of each column: below the first a word would be cut, the last holds all.

        At the second few names are broken, and only long ones.
        """
        sizes = []
        for place, column in enumerate(self.columns):
            cells = [row[place] for row in self.marked if len(row) > place]
            title, widths = _cell_width(column.title), [*map(_cell_width, cells)]
            whole = max([title, *widths])
            unbroken = widths if column.right or column.fixed else map(_least, cells)
            least = max([_least(column.title), *unbroken])
            comfortable = whole
            if sum(isinstance(cell, SystemName) for cell in cells) > 1:
                comfortable = _NAME_WIDTH
            elif isinstance(column.title, SystemName):
                comfortable = max([min(title, _HEADING), *widths])
            sizes.append((least, min(max(comfortable, least), whole), whole))
        return sizes

    def _blocks(self, available: int) -> Iterator[Grid]:
        """The grid, or several that repeat its first column, each as wide as the terminal."""
        least = [least for least, _, _ in self._sizes]
        groups, used = [[0]], least[0]
        for place in range(1, len(least)):
            if len(groups[-1]) > 1 and used + self.gap + least[place] > available:
                groups.append([0])
                used = least[0]
            groups[-1].append(place)
            used += self.gap + least[place]
        for places in groups:
            rows = [
                [row[place] for place in places] if len(row) == len(self.columns) else row
                for row in self.rows
            ]
            columns = [self.columns[place] for place in places]
            yield self if len(groups) == 1 else replace(self, columns=columns, rows=rows)

    def _table(self, available: int) -> Table:
        """The widest columns are made narrower first, as far as no word is cut."""
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, self.gap - 1, 0, 0), show_edge=False
        )
        widths = [whole for _, _, whole in self._sizes]
        while sum(widths) + self._gaps > available:
            wide = [at for at, (least, _, _) in enumerate(self._sizes) if widths[at] > least]
            if not wide:
                break
            widths[max(wide, key=lambda place: widths[place])] -= 1
        for column, width in zip(self.columns, widths, strict=True):
            title = _drawn(column.title, width)
            title.justify = "right" if column.right else "left"
            table.add_column(title, overflow="fold", width=width)
        for place, row in enumerate(self.marked):
            cells = [_drawn(cell, width) for cell, width in zip(row, widths, strict=False)]
            for column, cell, width in zip(self.columns, cells, widths, strict=False):
                if column.right:  # not by rich, which strips the space that stands for a mark
                    cell.pad_left(width - cell.cell_len)
            table.add_row(*cells, end_section=place in self.ends)
        return table


class Paper(Protocol):
    """What tables are drawn on: a terminal, or a page of Markdown or LaTeX."""

    @property
    def width(self) -> int:
        """How many characters a line holds."""

    def print(self, *parts: Any, style: str | None = None) -> None:
        """Add texts or grids."""


def print_fitting(layouts: Iterable[Grid], out: Paper) -> Grid:
    """Print and return the first layout that needs no folding; the last one when none fits."""
    for grid in layouts:
        if grid.width <= out.width:
            break
    out.print(grid)
    return grid


def pairs(rows: Iterable[tuple[str, str]], *, indent: int = 0) -> Table:
    """Names and values in two columns, each wrapped within its own."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(" " * indent + name), Text(value))
    return table


def columns_of(*titles: str) -> list[Column]:
    """A column for each title: of words on the left, of figures where a `>` stands before it."""
    return [Column(title.removeprefix(">"), right=title.startswith(">")) for title in titles]


def snippet(text: str, width: int) -> str:
    """The head of a text on one line: as many whole words as fit `width` cells."""
    flat = visible(" ".join(text.split()))
    if cell_len(flat) <= width:
        return flat
    cut = set_cell_size(flat, width - 2).rstrip()
    whole = cut.rpartition(" ")[0] if " " in cut and not flat.startswith(cut + " ") else cut
    return whole + " …"


def document_text(task: Task, document_id: str) -> str:
    """The text of a document that a ranking or judgement names, if the corpus holds it."""
    try:
        return task.document(document_id)
    except KeyError:
        return "(not in the corpus)"


def task_label(name: str) -> str:
    """The R2MED task that a registered task stands for; a folder's own name as it is."""
    entry = registered_task(name)
    return entry.source if entry else name


def explained(caption: str, labels: Iterable[str]) -> str:
    """A caption that also says which tasks the short names of a layout stand for."""
    names = [f"{SHORT_NAMES[label]}: {label}" for label in labels if label in SHORT_NAMES]
    return ". ".join(filter(None, [caption, ", ".join(names)])) + "." * bool(names)


def mean_of(values: Iterable[float | None]) -> float | None:
    """The mean; None where a value is missing, or there is none."""
    known = list(values)
    return None if None in known or not known else fmean(value or 0.0 for value in known)


def points(value: float | None, digits: int = 2, style: str = "") -> Text | None:
    """A score of 0 to 1, times 100."""
    return None if value is None else Text(f"{100 * value:.{digits}f}", style)


def signed(value: float | None, digits: int = 2, style: str = "") -> Text | None:
    """A difference of two scores, times 100."""
    return None if value is None else Text(f"{100 * value:+.{digits}f}", style)


def listed(words: Iterable[str]) -> str:
    """Words as a sentence lists them: a, b and c."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def percent(share: float) -> str:
    """A share of 0 to 1 as whole per cent."""
    return f"{100 * share:.0f} %"


def dollars(money: float) -> str:
    """Two decimals; small sums with as many as it takes not to read as nothing."""
    return f"${money:,.2f}" if money == 0 or money >= 0.1 else f"${money:.2g}"


def scaled(count: float, unit: str = "") -> str:
    """A large number in thousands, millions and so on, one digit after the point."""
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= factor:
            return f"{count / factor:,.1f} {prefix}{unit}"
    return f"{count:.0f} {unit}".rstrip()


def age(created: str) -> str:
    """How long ago an ISO time was, in its largest unit."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds()
    for unit, factor in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= factor:
            return f"{seconds / factor:.0f} {unit}"
    return f"{seconds:.0f} s"


def _drawn(cell: Cell, width: int) -> Text:
    if cell is None:
        return Text("-", style="dim")
    if isinstance(cell, SystemName):
        return Text("\n".join(cell.lines(width)))
    return Text(cell) if isinstance(cell, str) else cell.copy()


def _cell_width(cell: Cell) -> int:
    return 1 if cell is None else max(map(cell_len, str(cell).split("\n")))


def _least(cell: Cell) -> int:
    """The width below which a word would be cut."""
    words = cell.parts(_HEADING) if isinstance(cell, SystemName) else str(cell or "-").split()
    return max((cell_len(word.rstrip()) for word in words), default=0)


def _number(cell: Cell) -> float | None:
    if not isinstance(cell, Text) or "dim" in str(cell.style):
        return None
    try:
        return float(cell.plain.rstrip("* "))
    except ValueError:
        return None
