"""One value in five formats: a table for the terminal, Markdown, LaTeX, CSV and JSON.

Output for reading (table, Markdown, LaTeX) is drawn by one function, so all three show the same
values, with scores times 100. CSV and JSON are data: scores are 0 to 1, with all digits.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from r2med.report.console import console, echo, echo_json, visible
from r2med.report.drawing import draw
from r2med.report.table import Cell, Column, Grid, SystemName
from r2med.tables import Tabular

Format = Literal["table", "markdown", "latex", "csv", "json"]

#: A command between backticks.
_CODE = re.compile(r"`([^`\n]+)`")
#: A hyphen used as a minus sign.
_MINUS = re.compile(r"(?<![^\s(])-(?=\d)")
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$])")
#: What begins a heading, a list or a rule.
_LEADING = re.compile(r"^(\s*\d*)([#+\-=]+|[.)])(?=\s|$)")
#: How texts of these styles are set in Markdown and in HTML.
_PARAGRAPHS = {
    "bold": ("**{}**", "<p><b>{}</b></p>"),
    "title": ("# {}", "<h1>{}</h1>"),
    "section": ("## {}", "<h2>{}</h2>"),
    "item": ("- {}", '<p class="item">{}</p>'),
    "link": ("- [{}]({page}.md)", '<p class="item"><a href="{page}.html">{}</a></p>'),
    "quote": ("> {}", "<blockquote>{}</blockquote>"),
    "note": ("> {}", '<p class="note">{}</p>'),
}
#: A page of Markdown or HTML has no edge; on paper a wider layout would be set too small to read.
_PAGE_WIDTH, _PAPER_WIDTH = 10_000, 110
#: Characters of a cell of HTML that stay on one line.
_LONG_CELL = 60
#: Sets a table no wider than the lines of a page.
_FITTED = "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"


def show(value: Tabular, form: Format = "table", **drawing: Any) -> None:
    """Print a value on standard output; `drawing` is passed to the function that draws it."""
    if form == "json":
        echo_json(value.to_json())
    elif form == "csv":
        echo(value.to_csv().rstrip("\n"))
    elif form == "table":
        draw(value, console(), **drawing)
    else:
        page = Page(_PAPER_WIDTH if form == "latex" else _PAGE_WIDTH)
        draw(value, page, **drawing)
        echo(page.to_markdown() if form == "markdown" else page.to_latex())


class Page:
    """Collects the texts and tables of a drawing, and writes them as Markdown, HTML or LaTeX.

    The style of a text is a style of the terminal, one of `_PARAGRAPHS`, or `link PAGE`.
    """

    def __init__(self, width: int = _PAGE_WIDTH) -> None:
        self.width = width
        self._parts: list[Text | Grid] = []

    def print(self, *parts: object, style: str | None = None) -> None:
        """Store texts and grids for output; blank lines are dropped."""
        for part in parts:
            if isinstance(part, Grid):
                self._parts.append(part)
            elif isinstance(part, Padding):
                self.print(part.renderable, style=style)
            elif isinstance(part, Rule):
                self.print(part.title, style="bold")
            elif str(part).strip():
                text_style = str(part.style) if isinstance(part, Text) else ""
                self._parts.append(Text(str(part).strip(), style or text_style))

    def to_markdown(self) -> str:
        """Return paragraphs and pipe tables; every character is escaped."""
        return "\n\n".join(self._blocks("md", markdown, "  \n", _markdown_table))

    def to_html(self) -> str:
        """Return paragraphs and tables for a notebook; every character is escaped."""
        return "\n".join(self._blocks("html", _html, "<br>", _html_table))

    def _blocks(
        self, form: str, escaped: Callable[[str], str], line: str, table: Callable[[Grid], str]
    ) -> Iterator[str]:
        def paragraph(text: str, style: str = "") -> str:
            style_name, _, page = style.partition(" ")
            plain, tagged = _PARAGRAPHS.get(style_name, ("{}", "<p>{}</p>"))
            written = line.join(map(escaped, text.splitlines()))
            return (plain if form == "md" else tagged).format(written, page=page)

        for part in self._parts:
            if isinstance(part, Text):
                yield paragraph(part.plain, str(part.style))
                continue
            if part.title:
                yield paragraph(part.title, "bold")
            yield table(part)
            if part.caption:
                yield paragraph(part.caption)

    def to_latex(self) -> str:
        """Return a `table` per grid: texts under a heading are its caption, others its notes."""
        tables: list[tuple[list[str], Grid, list[str]]] = []
        captions: list[str] = []
        for part in self._parts:
            if isinstance(part, Grid):
                tables.append((captions, part, []))
                captions = []
            elif _is_bold(part) or captions or not tables:
                captions.append(part.plain)
            else:
                tables[-1][2].append(part.plain)
        blocks = [
            "% Needs \\usepackage{booktabs,graphicx}.",
            *(_latex_table(*table) for table in tables),
        ]
        return "\n\n".join([*blocks, *map(latex, captions)])


def latex(text: str) -> str:
    """Escape text for LaTeX, so that it compiles and prints the same or similar characters."""
    return "".join(map(_latex_character, _MINUS.sub("−", visible(text))))


def _is_bold(cell: object) -> bool:
    return isinstance(cell, Text) and "bold" in str(cell.style)


def _cell(cell: Cell, escaped: Callable[[str], str], bold: str) -> str:
    """Return the escaped text of a cell, formatted with `bold` if the cell is bold."""
    written = escaped("-" if cell is None else str(cell).strip())
    return bold.format(written) if _is_bold(cell) else written


def _full_rows(grid: Grid) -> Iterator[list[Cell]]:
    """Yield the rows, each filled with empty cells to the number of columns."""
    for row in grid.rows_with_best:
        yield [*row, *[""] * (len(grid.columns) - len(row))]


def _markdown_table(grid: Grid) -> str:
    titles = [_markdown_cell(column.title) for column in grid.columns]
    sides = ["---:" if column.right else "---" for column in grid.columns]
    rows = [titles, sides, *(map(_markdown_cell, row) for row in _full_rows(grid))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _markdown_cell(cell: Cell) -> str:
    if isinstance(cell, SystemName) and cell.text and "`" not in cell.text:
        return f"`{visible(cell.text)}`".replace("|", "\\|") + markdown(cell.note)
    return _cell(cell, markdown, "**{}**")


def markdown(text: str) -> str:
    """Escape one line of text, so that nothing in it is read as Markdown or HTML."""
    safe = _SPECIAL.sub(r"\\\1", visible(text).replace("\n", " ")).replace("&", "&amp;")
    return _LEADING.sub(r"\1\\\2", safe)


def _html_table(grid: Grid) -> str:
    heads = "".join(
        f'<th style="text-align:{_side(column)}">{_html(str(column.title))}</th>'
        for column in grid.columns
    )
    lines = [f"<thead><tr>{heads}</tr></thead><tbody>"]
    for row in grid.rows_with_best:
        if len(row) < len(grid.columns):
            section = _cell(row[0], _html, "<b>{}</b>")
            lines.append(
                f'<tr><td class="section" colspan="{len(grid.columns)}">{section}</td></tr>'
            )
            continue
        cells = (
            f'<td{_class_of(cell)} style="text-align:{_side(column)}">'
            f"{_cell(cell, _html, '<b>{}</b>')}</td>"
            for cell, column in zip(row, grid.columns, strict=True)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table>{''.join(lines)}</tbody></table>"


def _side(column: Column) -> str:
    return "right" if column.right else "left"


def _class_of(cell: Cell) -> str:
    """Return the HTML class attribute of a cell: for system names, and for long texts."""
    if isinstance(cell, SystemName):
        return ' class="system"'
    return ' class="text"' if len(str(cell or "")) > _LONG_CELL else ""


def _html(text: str) -> str:
    """Escape text for HTML; commands between backticks become code."""
    from html import escape  # only HTML output needs it

    return _CODE.sub(r"<code>\1</code>", escape(visible(text)))


def _latex_table(captions: Iterable[str], grid: Grid, notes: Iterable[str]) -> str:
    columns = grid.columns
    lines = ["\\begin{table}", "\\centering"]
    if heading := [line.replace("\n", "; ") for line in (*captions, grid.title) if line]:
        lines.append(f"\\caption{{{latex('; '.join(heading))}.}}")
    sides = "".join("r" if column.right else "l" for column in columns)
    lines += [_FITTED, f"\\begin{{tabular}}{{{sides}}}", "\\toprule"]
    lines += [_latex_row(column.title for column in columns), "\\midrule"]
    for index, row in enumerate(grid.rows_with_best):
        if len(row) < len(columns):
            section = f"\\emph{{{_cell(row[0], latex, '{}')}}}"
            lines.append(f"\\multicolumn{{{len(columns)}}}{{l}}{{{section}}} \\\\")
        else:
            lines.append(_latex_row(row))
        if index in grid.ends and index + 1 < len(grid.rows):
            lines.append("\\midrule")
    lines += ["\\bottomrule", "\\end{tabular}}"]
    if below := " ".join(filter(None, [grid.caption, *notes])):
        lines += ["", f"\\smallskip\n{{\\footnotesize {latex(below)}\\par}}"]
    return "\n".join([*lines, "\\end{table}"])


def _latex_row(cells: Iterable[Cell]) -> str:
    return " & ".join(_cell(cell, _latex_number, "\\textbf{{{}}}") for cell in cells) + " \\\\"


def _latex_number(text: str) -> str:
    """Return a cell in LaTeX; a star after a number becomes a superscript."""
    number, star, _ = text.partition("*")
    marked = star and number[-1:].isdigit()
    return f"{latex(number)}$^{{*}}$" if marked else latex(text)


#: Characters that LaTeX reads as commands, and those of our tables that fonts may lack.
_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"},
    **{"<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}", '"': "''"},
    **{"[": "{[}", "]": "{]}", "\n": " "},
    **{"×": "$\\times$", "±": "$\\pm$", "≈": "$\\approx$", "·": "$\\cdot$", "−": "$-$"},
    **{"≤": "$\\leq$", "≥": "$\\geq$", "°": "$^\\circ$", "→": "$\\to$", "µ": "$\\mu$"},
    **{"▲": "$\\uparrow$", "▼": "$\\downarrow$", "…": "\\ldots{}", "–": "--", "—": "---"},
    **{"‘": "`", "’": "'", "“": "``", "”": "''"},
}
_LETTER = re.compile(r"LETTER (\w+)")


def _latex_character(character: str) -> str:
    """Return a character in LaTeX; a letter of another script becomes its name, such as beta."""
    if character in _LATEX:
        return _LATEX[character]
    if character.isascii() or "À" <= character <= "ÿ":
        return character
    simple = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    if not simple and (letter := _LETTER.search(unicodedata.name(character, ""))):
        simple = letter[1].lower()
    return "".join(_LATEX.get(letter, letter) for letter in simple) or "?"
