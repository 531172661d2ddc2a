"""A page as Markdown; every text is escaped, so data can never become markup."""

from __future__ import annotations

import re
from collections.abc import Iterator

from r2med.report.cards.blocks import Block, Bullets, Grid, Links, Page, Paragraph, Quote

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$])")
_LEADING = re.compile(r"^(\s*)([#+\-=]|\d+[.)])(?=\s|$)")


def markdown(page: Page) -> str:
    """The whole file."""
    lines = [f"# {escaped(page.title)}", "", escaped(page.lead), ""]
    for section in page.sections:
        lines += [f"## {escaped(section.title)}", ""]
        for block in section.blocks:
            lines += [*_block(block), ""]
    return "\n".join(lines).rstrip() + "\n"


def escaped(text: str) -> str:
    """One line of text in which nothing is read as Markdown or HTML."""
    flat = " ".join(text.split())
    safe = _SPECIAL.sub(r"\\\1", flat).replace("&", "&amp;")
    return _LEADING.sub(lambda found: f"{found[1]}\\{found[2]}", safe)


def _block(block: Block) -> Iterator[str]:
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
        yield from _grid(block)


def _grid(grid: Grid) -> Iterator[str]:
    if grid.caption:
        yield escaped(grid.caption)
        yield ""
    yield f"| {' | '.join(escaped(header) for header in grid.headers)} |"
    rest = "---|" if grid.words else "---:|"
    yield "|---|" + rest * (len(grid.headers) - 1)
    for row in grid.rows:
        yield f"| {' | '.join(escaped(cell) for cell in row)} |"
