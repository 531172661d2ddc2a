"""A page as plain values, and its two forms: Markdown, and one HTML file.

Texts hold no markup, and every text is escaped, so data can never become markup. The HTML has no
script, loads nothing, has light and dark colours, and is fit to print.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from importlib.resources import files

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$])")
_LEADING = re.compile(r"^(\s*\d*)([#+\-=]+|[.)])(?=\s|$)")


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; `note` marks what a reader must not miss."""

    text: str
    note: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list of short statements."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A table; all columns but the first hold figures unless `words`."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    words: bool = False


@dataclass(frozen=True)
class Quote:
    """Texts of the data, each under a label."""

    title: str
    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Links:
    """Links to other pages of the same set: (text, the page's name without its ending)."""

    items: tuple[tuple[str, str], ...]


Block = Paragraph | Bullets | Grid | Quote | Links


@dataclass(frozen=True)
class Section:
    """A headed part of a page."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """A whole page; `name` is its file's name without the ending."""

    name: str
    title: str
    lead: str
    sections: tuple[Section, ...]


def markdown(page: Page) -> str:
    """The whole file."""
    lines = [f"# {escaped(page.title)}", "", escaped(page.lead), ""]
    for section in page.sections:
        lines += [f"## {escaped(section.title)}", ""]
        for block in section.blocks:
            lines += [*_markdown_block(block), ""]
    return "\n".join(lines).rstrip() + "\n"


def escaped(text: str) -> str:
    """One line of text in which nothing is read as Markdown or HTML."""
    flat = " ".join(text.split())
    safe = _SPECIAL.sub(r"\\\1", flat).replace("&", "&amp;")
    return _LEADING.sub(lambda match: f"{match[1]}\\{match[2]}", safe)


def _markdown_block(block: Block) -> Iterator[str]:
    if isinstance(block, Paragraph):
        yield f"> {escaped(block.text)}" if block.note else escaped(block.text)
    elif isinstance(block, Bullets):
        yield from (f"- {escaped(item)}" for item in block.items)
    elif isinstance(block, Links):
        yield from (f"- [{escaped(text)}]({page}.md)" for text, page in block.items)
    elif isinstance(block, Quote):
        yield f"**{escaped(block.title)}**"
        for label, text in block.parts:
            yield ""
            yield f"> *{escaped(label)}:* {escaped(text)}"
    else:
        yield from _markdown_grid(block)


def _markdown_grid(grid: Grid) -> Iterator[str]:
    if grid.caption:
        yield escaped(grid.caption)
        yield ""
    yield f"| {' | '.join(escaped(header) for header in grid.headers)} |"
    rest = "---|" if grid.words else "---:|"
    yield "|---|" + rest * (len(grid.headers) - 1)
    for row in grid.rows:
        yield f"| {' | '.join(escaped(cell) for cell in row)} |"


def html(page: Page) -> str:
    """The whole file; every text is escaped."""
    style = (files("r2med.report.cards") / "page.css").read_text(encoding="utf-8")
    body = [f"<h1>{escape(page.title)}</h1>", f'<p class="lead">{escape(page.lead)}</p>']
    for section in page.sections:
        body.append(f"<h2>{escape(section.title)}</h2>")
        body += [line for block in section.blocks for line in _html_block(block)]
    content = "\n".join(body)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(page.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<main>\n{content}\n</main>\n"
        "<footer>Made with r2med tasks card. "
        "A research instrument, never a clinical decision system.</footer>\n</body>\n</html>\n"
    )


def _html_block(block: Block) -> Iterator[str]:
    if isinstance(block, Paragraph):
        kind = ' class="note"' if block.note else ""
        yield f"<p{kind}>{escape(block.text)}</p>"
    elif isinstance(block, Bullets):
        yield "<ul>"
        yield from (f"<li>{escape(item)}</li>" for item in block.items)
        yield "</ul>"
    elif isinstance(block, Links):
        yield "<ul>"
        for text, page in block.items:
            yield f'<li><a href="{escape(page)}.html">{escape(text)}</a></li>'
        yield "</ul>"
    elif isinstance(block, Quote):
        yield f'<section class="quote"><h3>{escape(block.title)}</h3><dl>'
        for label, text in block.parts:
            yield f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>"
        yield "</dl></section>"
    else:
        yield from _html_grid(block)


def _html_grid(grid: Grid) -> Iterator[str]:
    figure = "" if grid.words else ' class="figure"'
    yield '<div class="wide"><table>'
    if grid.caption:
        yield f"<caption>{escape(grid.caption)}</caption>"
    yield f"<thead>{_html_row('th', figure, grid.headers)}</thead>"
    yield "<tbody>"
    yield from (_html_row("td", figure, row) for row in grid.rows)
    yield "</tbody></table></div>"


def _html_row(cell: str, figure: str, texts: tuple[str, ...]) -> str:
    cells = [
        f"<{cell}{figure if place else ''}>{escape(text)}</{cell}>"
        for place, text in enumerate(texts)
    ]
    return f"<tr>{''.join(cells)}</tr>"
