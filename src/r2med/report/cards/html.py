"""A page as one HTML file: no script, nothing loaded, light and dark, fit to print."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from importlib.resources import files

from r2med.report.cards.blocks import Block, Bullets, Grid, Links, Page, Paragraph, Quote


def html(page: Page) -> str:
    """The whole file; every text is escaped."""
    style = (files("r2med.report.cards") / "page.css").read_text(encoding="utf-8")
    body = [f"<h1>{escape(page.title)}</h1>", f'<p class="lead">{escape(page.lead)}</p>']
    for section in page.sections:
        body.append(f"<h2>{escape(section.title)}</h2>")
        body += [line for block in section.blocks for line in _block(block)]
    content = "\n".join(body)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(page.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<main>\n{content}\n</main>\n"
        "<footer>Made with r2med tasks card. "
        "A research instrument, never a clinical decision system.</footer>\n</body>\n</html>\n"
    )


def _block(block: Block) -> Iterator[str]:
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
        yield from _grid(block)


def _grid(grid: Grid) -> Iterator[str]:
    figure = "" if grid.words else ' class="figure"'
    yield '<div class="wide"><table>'
    if grid.caption:
        yield f"<caption>{escape(grid.caption)}</caption>"
    yield f"<thead>{_row('th', figure, grid.headers)}</thead>"
    yield "<tbody>"
    yield from (_row("td", figure, row) for row in grid.rows)
    yield "</tbody></table></div>"


def _row(cell: str, figure: str, texts: tuple[str, ...]) -> str:
    cells = [
        f"<{cell}{figure if place else ''}>{escape(text)}</{cell}>"
        for place, text in enumerate(texts)
    ]
    return f"<tr>{''.join(cells)}</tr>"
