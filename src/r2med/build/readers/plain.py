"""Plain text and Markdown: offsets count characters of the file's own text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from r2med.build.readers.extracted import HEADING_SEPARATOR, Extracted, Section, UnreadableFileError

#: A heading of a plain text: a line between empty lines, in capitals or numbered, or underlined.
_TEXT_HEADING = re.compile(
    r"(?:\A|(?<=\n\n))[ \t]*(?P<heading>"
    r"(?:\d{1,2}(?:\.\d{1,2}){0,3}\.?[ \t]+)?[A-Z][^\na-z.!?]{2,70}"
    r"|\d{1,2}(?:\.\d{1,2}){0,3}\.?[ \t]+[A-Z][^\n.!?]{2,70}"
    r"|[^\n]{3,80}(?=\n[ \t]*(?:={3,}|-{3,})[ \t]*(?:\n|\Z))"
    r")[ \t]*\n(?:[ \t]*[=-]{3,}[ \t]*\n|(?=[ \t]*\n))"
)
_FENCE = re.compile(r"^[ ]{0,3}(`{3,}|~{3,})", re.MULTILINE)
_MARKDOWN_HEADING = re.compile(
    r"^[ ]{0,3}(?P<marks>#{1,6})[ \t]+(?P<heading>[^\n]{0,300}?)[ \t]{0,9}#{0,9}[ \t]{0,9}$"
    r"|^(?P<underlined>[^\s#>|*+-][^\n]{0,200})\n(?P<line>=+|-+)[ \t]*$",
    re.MULTILINE,
)
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n.*?\n---[ \t]*\n", re.DOTALL)
#: Marks of Markdown and the text that remains of them.
_MARKS = (
    (re.compile(r"<!--.*?-->", re.DOTALL), ""),
    (re.compile(r"^[ ]{0,3}(?:`{3,}|~{3,})[^\n]*$", re.MULTILINE), ""),
    (re.compile(r"!?\[([^\]\n]{0,500})\]\([^)\n]{0,2000}\)"), r"\1"),
    (re.compile(r"^[ ]{0,3}>[ \t]?", re.MULTILINE), ""),
    (re.compile(r"^[ \t]*\|?(?:[ \t]*:?-{2,}:?[ \t]*\|)+[ \t]*:?-*:?[ \t]*$", re.MULTILINE), ""),
    (re.compile(r"(\*\*|__)(?=\S)([^\n]{1,500}?\S)\1"), r"\2"),
    (re.compile(r"(?<![\w*])\*(?=\S)([^*\n]{1,500}?\S)\*(?![\w*])"), r"\1"),
    (re.compile(r"`([^`\n]{1,500})`"), r"\1"),
    (re.compile(r"\\([\\`*_{}\[\]()#+.!|>-])"), r"\1"),
)


def read_text(text: str) -> Extracted:
    """Return a plain text with the sections that its headings mark."""
    if not text.strip():
        raise UnreadableFileError("empty")
    headings = [(m.start(), m.end(), m["heading"].strip()) for m in _TEXT_HEADING.finditer(text)]
    return Extracted(text, tuple(_sections(len(text), headings)))


def read_markdown(text: str) -> Extracted:
    """Return a Markdown text with nested sections; marks are removed when passages are made."""
    if not text.strip():
        raise UnreadableFileError("empty")
    body = _FRONT_MATTER.match(text)
    start = body.end() if body else 0
    fenced = iter(_fenced_ranges(text))
    fence = next(fenced, None)
    levels: dict[int, str] = {}
    headings = []
    for match in _MARKDOWN_HEADING.finditer(text, start):
        while fence is not None and fence[1] <= match.start():
            fence = next(fenced, None)
        if fence is not None and fence[0] <= match.start():
            continue
        if match["marks"]:
            level, heading = len(match["marks"]), match["heading"]
        else:
            level, heading = 1 if match["line"].startswith("=") else 2, match["underlined"]
        levels = {upper: title for upper, title in levels.items() if upper < level}
        levels[level] = clean_markdown(heading).strip()
        headings.append((match.start(), match.end(), HEADING_SEPARATOR.join(levels.values())))
    sections = tuple(_sections(len(text), headings, start))
    return Extracted(text, sections, is_markdown=True)


def clean_markdown(text: str) -> str:
    """Remove links, emphasis and other marks."""
    for pattern, replacement in _MARKS:
        text = pattern.sub(replacement, text)
    return text


def _fenced_ranges(text: str) -> list[tuple[int, int]]:
    """Return where blocks of code begin and end; their lines are never headings."""
    ranges, opened, fence = [], -1, ""
    for match in _FENCE.finditer(text):
        if opened < 0:
            opened, fence = match.start(), match[1]
        elif match[1].startswith(fence):
            ranges.append((opened, match.end()))
            opened = -1
    return [*ranges, (opened, len(text))] if opened >= 0 else ranges


def _sections(
    length: int, headings: list[tuple[int, int, str]], start: int = 0
) -> Iterator[Section]:
    """Yield a section for the text before the first heading, and one per heading."""
    ends = [heading_start for heading_start, _, _ in headings]
    starts = [(start, "")] + [(heading_end, heading) for _, heading_end, heading in headings]
    for (section_start, heading), end in zip(starts, [*ends, length], strict=True):
        if section_start < end:
            yield Section(section_start, end, heading)
