"""The table class of all reports: a grid that can be fitted to a width, and number formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from math import fsum
from typing import TYPE_CHECKING, Any, Protocol

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from r2med.number_format import format_difference, format_points
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
    """Text after the name, such as a footnote mark."""

    def __str__(self) -> str:
        return self.text + self.note

    def lines(self, width: int) -> list[str]:
        """Return the name in lines of at most `width`; longer parts are broken or cut."""
        lines = [""]
        for part in self.parts(width):
            if len(lines[-1] + part.rstrip()) > width and lines[-1]:
                lines.append("")
            lines[-1] += part
            while len(lines[-1].rstrip()) > width:
                lines[-1:] = [lines[-1][:width], lines[-1][width:]]
        return [line.rstrip() for line in lines]

    def parts(self, width: int, text: str | None = None, level: int = 0) -> Iterator[str]:
        """Yield the parts between which a line may be broken, as few as `width` allows."""
        name = str(self) if text is None else text
        if len(name.rstrip()) <= width or level == len(_BREAKS):
            yield name
            return
        for part in _BREAKS[level].findall(name):
            yield from self.parts(width, part, level + 1)


Cell = str | Text | SystemName | None
"""Content of a cell; None is shown as a dash."""


@dataclass(frozen=True)
class Column:
    """A heading, and the alignment and style of its cells."""

    title: str | SystemName
    right: bool = True
    fixed: bool = False
    """Whether cells are never broken over lines; right-aligned cells never are."""
    repeat: bool = False
    """Whether the column is repeated in every part of a table that is too wide for the terminal."""
    best: bool = False
    """Whether the highest number is bold; numbers are compared as printed, and dim ones are
    ignored."""
    cell: Callable[[Any], Cell] = str
    """Makes the cell of a value, for `Grid.of`."""


@dataclass(frozen=True)
class Grid:
    """Columns and rows of cells; `ends` are the indexes of the rows that end a section.

    A row that is shorter than the columns is a heading of the rows below it. Columns that do not
    fit the terminal are printed in a second table below the first.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    gap: int = 2
    ends: frozenset[int] = frozenset()
    title: str = ""
    caption: str | None = None

    @classmethod
    def of(cls, columns: Sequence[Column], values: Iterable[Any], **layout: Any) -> Grid:
        """Return a grid with one row per value; each column's `cell` makes the cells."""
        return cls(columns, [[c.cell(value) for c in columns] for value in values], **layout)

    @property
    def width(self) -> int:
        """The width at which every cell is on one line; long names may still be broken."""
        return sum(comfortable for _, comfortable, _ in self._sizes) + self._gaps

    @cached_property
    def rows_with_best(self) -> list[list[Cell]]:
        """The rows, with the highest number of each `best` column in bold."""
        rows = [list(row) for row in self.rows]
        for index, column in enumerate(self.columns):
            numbers = {
                row_index: _parse_number(row[index])
                for row_index, row in enumerate(rows)
                if len(row) > index
            }
            values = [number for number in numbers.values() if number is not None]
            if column.best and len(values) > 1:
                for row_index, number in numbers.items():
                    if number == max(values):
                        rows[row_index][index] = Text(str(rows[row_index][index]), "bold")
        return rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield title, table and caption; title and caption may be wider than the table."""
        if self.title:
            yield Text(self.title, style="bold")
        for index, block in enumerate(self._blocks(options.max_width)):
            if index:
                yield Text()
            yield block._table(options.max_width)
        if self.caption:
            yield Text(self.caption, style="dim")

    @property
    def _gaps(self) -> int:
        return self.gap * (len(self.columns) - 1)

    @cached_property
    def _sizes(self) -> list[tuple[int, int, int]]:
        """The least, the comfortable and the full width of each column.

        The least width cuts no word. The comfortable one breaks only long names. The full one
        breaks nothing.
        """
        sizes = []
        for index, column in enumerate(self.columns):
            cells = [row[index] for row in self.rows_with_best if len(row) > index]
            title, widths = _cell_width(column.title), [*map(_cell_width, cells)]
            widest = max([title, *widths])
            unbroken = widths if column.right or column.fixed else map(_minimum_width, cells)
            least = max([_minimum_width(column.title), *unbroken])
            comfortable = widest
            if sum(isinstance(cell, SystemName) for cell in cells) > 1:
                comfortable = _NAME_WIDTH
            elif isinstance(column.title, SystemName):
                comfortable = max([min(title, _HEADING), *widths])
            sizes.append((least, min(max(comfortable, least), widest), widest))
        return sizes

    def _blocks(self, available: int) -> Iterator[Grid]:
        """Yield the grid, or if it is too wide, several that repeat its leading columns."""
        least = [least for least, _, _ in self._sizes]
        repeated = [0, *(i for i, column in enumerate(self.columns) if column.repeat and i > 0)]
        repeated_width = sum(least[index] + self.gap for index in repeated) - self.gap
        groups, used = [list(repeated)], repeated_width
        for index in range(1, len(least)):
            if index in repeated:
                continue
            is_started = len(groups[-1]) > len(repeated)
            if is_started and used + self.gap + least[index] > available:
                groups.append(list(repeated))
                used = repeated_width
            groups[-1].append(index)
            used += self.gap + least[index]
        groups = [sorted(indices) for indices in groups]
        for indices in groups:
            rows = [
                [row[index] for index in indices] if len(row) == len(self.columns) else row
                for row in self.rows
            ]
            columns = [self.columns[index] for index in indices]
            yield self if len(groups) == 1 else replace(self, columns=columns, rows=rows)

    def _table(self, available: int) -> Table:
        """Return the table for a width; the widest columns are narrowed first, cutting no words."""
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, self.gap - 1, 0, 0), show_edge=False
        )
        widths = [widest for _, _, widest in self._sizes]
        while sum(widths) + self._gaps > available:
            shrinkable = [
                index for index, (least, _, _) in enumerate(self._sizes) if widths[index] > least
            ]
            if not shrinkable:
                break
            widths[max(shrinkable, key=lambda index: widths[index])] -= 1
        for column, width in zip(self.columns, widths, strict=True):
            title = _render_cell(column.title, width)
            title.justify = "right" if column.right else "left"
            table.add_column(title, overflow="fold", width=width)
        for index, row in enumerate(self.rows_with_best):
            cells = [_render_cell(cell, width) for cell, width in zip(row, widths, strict=False)]
            for column, cell, width in zip(self.columns, cells, widths, strict=False):
                if column.right:  # not by rich, which strips the space in the column of marks
                    cell.pad_left(width - cell.cell_len)
            table.add_row(*cells, end_section=index in self.ends)
        return table


class Paper(Protocol):
    """Where texts and tables are drawn: a terminal, or a page of Markdown or LaTeX."""

    @property
    def width(self) -> int:
        """How many characters a line holds."""

    def print(self, *parts: Any, style: str | None = None) -> None:
        """Add texts or grids."""


def print_fitting(layouts: Iterable[Grid], out: Paper) -> Grid:
    """Print and return the first layout that fits without breaking cells, or else the last one."""
    for grid in layouts:
        if grid.width <= out.width:
            break
    out.print(grid)
    return grid


def name_value_table(rows: Iterable[tuple[str, str]], *, indent: int = 0) -> Table:
    """Return a table of names and values, each wrapped within its column."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(" " * indent + name), Text(value))
    return table


def make_columns(*titles: str) -> list[Column]:
    """Return a column per title: left-aligned, or right-aligned if the title starts with `>`."""
    return [Column(title.removeprefix(">"), right=title.startswith(">")) for title in titles]


def judgements_note(judgements: str) -> str:
    """Return a note that scores use added judgements."""
    return f"Judgements: {judgements}. These scores are not comparable with published figures."


def snippet(text: str, width: int) -> str:
    """Return the start of a text on one line: as many whole words as fit `width` cells."""
    flat = visible(" ".join(text.split()))
    if cell_len(flat) <= width:
        return flat
    cut = set_cell_size(flat, width - 2).rstrip()
    words = cut.rpartition(" ")[0] if " " in cut and not flat.startswith(cut + " ") else cut
    return words + " …"


def document_text(task: Task, document_id: str) -> str:
    """Return the text of a document, or a placeholder if the corpus does not have it."""
    try:
        return task.document(document_id)
    except KeyError:
        return "(not in the corpus)"


def task_label(name: str) -> str:
    """Return the R2MED task from which a registered task is made; other names are unchanged."""
    entry = registered_task(name)
    return entry.source if entry else name


def append_short_names(caption: str, labels: Iterable[str]) -> str:
    """Append to a caption the full names of the tasks that a layout abbreviates."""
    names = [f"{SHORT_NAMES[label]}: {label}" for label in labels if label in SHORT_NAMES]
    if not names:
        return caption
    full_names = f"{', '.join(names)}."
    return f"{caption}. {full_names}" if caption else full_names


def mean_or_none(values: Sequence[float | None]) -> float | None:
    """Return the mean; None if a value is missing, or without values."""
    numbers = [value for value in values if value is not None]
    if not numbers or len(numbers) < len(values):
        return None
    return fsum(numbers) / len(numbers)


def score_cell(value: float | None, digits: int = 2, style: str = "") -> Text | None:
    """Return a cell with a score in points; None without a value."""
    return None if value is None else Text(format_points(value, digits), style)


def difference_cell(value: float | None, digits: int = 2, style: str = "") -> Text | None:
    """Return a cell with a difference of two scores in points; None without a value."""
    return None if value is None else Text(format_difference(value, digits), style)


def format_age(created: str) -> str:
    """Return how long ago an ISO time was, in its largest unit."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds()
    if seconds < 0:
        return "in the future"
    for unit, factor in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= factor:
            return f"{seconds / factor:.0f} {unit}"
    return f"{seconds:.0f} s"


def _render_cell(cell: Cell, width: int) -> Text:
    if cell is None:
        return Text("-", style="dim")
    if isinstance(cell, SystemName):
        return Text("\n".join(cell.lines(width)))
    return Text(cell) if isinstance(cell, str) else cell.copy()


def _cell_width(cell: Cell) -> int:
    return 1 if cell is None else max(map(cell_len, str(cell).split("\n")))


def _minimum_width(cell: Cell) -> int:
    """Return the smallest width that does not break a word."""
    words = cell.parts(_HEADING) if isinstance(cell, SystemName) else str(cell or "-").split()
    return max((cell_len(word.rstrip()) for word in words), default=0)


def _parse_number(cell: Cell) -> float | None:
    if not isinstance(cell, Text) or "dim" in str(cell.style):
        return None
    try:
        return float(cell.plain.rstrip("* "))
    except ValueError:
        return None
