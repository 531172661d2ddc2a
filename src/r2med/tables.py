"""Convert values of the API to tables: Arrow, pandas, polars, JSON, CSV and HTML."""

from __future__ import annotations

import io
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from r2med.errors import MissingError

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN_ROWS = 10

#: Spreadsheets read a cell that starts with one of these as a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


class Tabular(ABC):
    """Base of values that can be converted to tables; subclasses define `to_arrow`."""

    is_drawn: ClassVar[bool] = False
    """Whether `str` and notebooks show the value as the command line does."""

    def __init_subclass__(cls) -> None:
        """Use the short `__repr__` instead of a dataclass's, which would show all content."""
        cls.__repr__ = cls.__dict__.get("__repr__", Tabular.__repr__)  # type: ignore[method-assign]

    def __repr__(self) -> str:
        table = self.to_arrow()
        return f"{type(self).__name__}({table.num_rows:,} rows, {table.num_columns} columns)"

    def __str__(self) -> str:
        if not self.is_drawn:
            return repr(self)
        text = io.StringIO()
        width = max(80, shutil.get_terminal_size().columns)
        out = import_module("r2med.report.console").console(text, width)
        import_module("r2med.report.drawing").draw(self, out)
        return text.getvalue().rstrip("\n")

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the output of the command line, or the table's first rows."""
        if not self.is_drawn:
            table = self.to_arrow().slice(0, _SHOWN_ROWS)
            rows = ([_cell(value) for value in row.values()] for row in table.to_pylist())
            return html_table(repr(self), table.column_names, rows)
        page = import_module("r2med.report.formats").Page()
        import_module("r2med.report.drawing").draw(self, page)
        return notebook_html(str(page.to_html()))

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return the value as an Arrow table."""

    def to_pandas(self) -> Any:
        """Return the value as a pandas data frame."""
        _library("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return the value as a polars data frame."""
        return _library("polars").from_arrow(self.to_arrow())

    def to_json(self) -> Any:
        """Return the value as JSON values; by default one record per row."""
        return self.to_arrow().to_pylist()

    def to_csv(self) -> str:
        """Return the value as CSV text; an empty cell is a missing value."""
        return csv_text(self.to_arrow())


#: The look of the explorer; colours are mixed with the notebook's text colour, so that tables suit
#: light and dark themes.
_NOTEBOOK_STYLE = """<style>
.r2med { font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  --r2med-accent: color-mix(in srgb, #14908c 75%, currentColor);
  --r2med-line: color-mix(in srgb, currentColor 16%, transparent);
  --r2med-quiet: color-mix(in srgb, currentColor 68%, transparent); overflow-x: auto; }
.r2med table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 8px 0;
  border: 0; border-top: 2px solid var(--r2med-accent); }
.r2med th, .r2med td { padding: 5px 10px; border: 0; background: none; color: inherit;
  border-bottom: 1px solid var(--r2med-line); white-space: nowrap; }
.r2med th { font-weight: 400; font-size: 12px; white-space: normal; vertical-align: bottom;
  color: var(--r2med-quiet); }
.r2med td.text { white-space: normal; min-width: 16em; max-width: 60em; }
.r2med td.section { color: var(--r2med-quiet); padding-top: 12px; font-size: 12px; }
.r2med td b { color: var(--r2med-accent); font-weight: 650; }
.r2med td.system, .r2med .system { font-family: ui-monospace, Menlo, Consolas, monospace;
  font-size: 13px; }
.r2med tr:hover td { background: color-mix(in srgb, #14908c 10%, transparent); }
.r2med p { margin: 6px 0; max-width: 80ch; color: var(--r2med-quiet); font-size: 13px; }
.r2med p b { font-size: 15px; font-weight: 650; color: var(--r2med-ink, inherit); }
.r2med p:has(b) { color: inherit; margin-top: 12px; }
</style>"""


def notebook_html(content: str) -> str:
    """Return HTML for a notebook in the style of the explorer, for light and dark themes."""
    return f'<div class="r2med">{_NOTEBOOK_STYLE}{content}</div>'


def html_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    notes: Iterable[str] = (),
) -> str:
    """Return a plain HTML table for a notebook; texts are escaped."""
    from html import escape  # only notebooks need it

    heads = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
    below = [f"<p>{escape(note)}</p>" for note in notes]
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return notebook_html("".join([f"<p><b>{escape(title)}</b></p>", table, *below]))


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "" if value is None else str(value)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingError(f"to_{name}() needs {name}: pip install {name}") from None


def make_table(columns: Mapping[str, type], rows: Iterable[Mapping[str, object]]) -> pa.Table:
    """Return rows as an Arrow table of these columns; a key that a row lacks is a missing value."""
    import pyarrow as pa

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    schema = pa.schema([pa.field(name, kinds[value_type]) for name, value_type in columns.items()])
    return pa.Table.from_pylist(list(rows), schema=schema)


def table_columns(record: type) -> dict[str, type]:
    """Return the fields of a dataclass that can be columns: those of one value, or None."""
    columns: dict[str, type] = {}
    for name, hint in get_type_hints(record).items():
        kinds = [
            value_type for value_type in get_args(hint) or (hint,) if value_type is not type(None)
        ]
        if get_origin(hint) is Literal:
            columns[name] = str
        elif len(kinds) == 1 and kinds[0] in (str, int, float, bool):
            columns[name] = kinds[0]
    return columns


def _csv_cell(value: object) -> object:
    """Return a value for a CSV cell; text that a spreadsheet would run as a formula is escaped."""
    if isinstance(value, list):
        return json.dumps(value)
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value


def csv_text(table: pa.Table) -> str:
    """Return a table as CSV; numbers keep all digits, and lists are JSON.

    Only values that need quotes have them.
    """
    import csv  # only this function needs it

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    for batch in table.to_batches():
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        writer.writerows([_csv_cell(value) for value in row] for row in rows)
    return text.getvalue()
