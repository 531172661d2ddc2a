"""The text of one document, with its sections and pages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

#: Between the headings of nested sections.
HEADING_SEPARATOR = " > "


class UnreadableFileError(Exception):
    """A file or row that has no text to extract; the message is the reason."""


@dataclass(frozen=True)
class Section:
    """A part of the text under one heading."""

    start: int
    end: int
    heading: str


@dataclass(frozen=True)
class Extracted:
    """The text of a document; offsets of sections and passages count its characters."""

    text: str
    sections: tuple[Section, ...]
    name: str = ""
    """The document's identifier in its file, such as a PMC id; empty if it has none."""
    licence: str = ""
    """The licence that the document declares; empty if it declares none."""
    page_starts: tuple[int, ...] = ()
    """Offset at which every page begins; empty if there are no pages."""
    notices: tuple[str, ...] = ()
    """Notices for the user, such as pages without text."""
    is_markdown: bool = False

    def page_at(self, offset: int) -> int | None:
        """Return the page, from 1, that an offset is on."""
        return bisect_right(self.page_starts, offset) if self.page_starts else None


@dataclass
class TextBuilder:
    """Collects blocks of text under headings, in order."""

    _parts: list[str] = field(default_factory=list)
    _sections: list[Section] = field(default_factory=list)
    _length: int = 0

    def add(self, text: str, headings: Sequence[str]) -> None:
        """Add a block; consecutive blocks with equal headings form a section. Drop empty blocks."""
        block = text.strip()
        if not block:
            return
        heading = HEADING_SEPARATOR.join(part for part in headings if part)
        if self._parts:
            self._parts.append("\n\n")
            self._length += 2
        start = self._length
        self._parts.append(block)
        self._length += len(block)
        if self._sections and self._sections[-1].heading == heading:
            start = self._sections.pop().start
        self._sections.append(Section(start, self._length, heading))

    @property
    def text(self) -> str:
        """All blocks, with an empty line between two."""
        return "".join(self._parts)

    @property
    def sections(self) -> tuple[Section, ...]:
        """Return the sections so far."""
        return tuple(self._sections)
