"""What a page consists of: plain values that every form is rendered from; texts hold no markup."""

from __future__ import annotations

from dataclasses import dataclass


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
