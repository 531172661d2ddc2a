"""HTML pages: text under headings, without scripts, navigation and forms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from r2med.build.readers.decoding import FALLBACK, decode, describe_encoding
from r2med.build.readers.extracted import Extracted, TextBuilder, UnreadableFileError
from r2med.errors import need

_SKIPPED = frozenset(
    ["script", "style", "noscript", "template", "nav", "form", "button", "select", "iframe",
     "object", "svg", "math", "head", "footer", "aside", "canvas", "audio", "video", "dialog"]
)  # fmt: skip
_BLOCKS = frozenset(
    ["p", "div", "li", "dt", "dd", "blockquote", "pre", "section", "article", "main", "figure",
     "figcaption", "caption", "tr", "table", "ul", "ol", "dl", "hr", "header", "address", "details",
     "summary", "body", "html", "thead", "tbody", "tfoot", "center", "fieldset"]
)  # fmt: skip
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
#: Elements deeper than this are not read; no page of a person is.
_MOST_DEPTH = 500
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([A-Za-z0-9_-]{2,30})", re.I)
_REFERENCE = re.compile(r"[\[(]?[\d,\s–-]{1,20}[\])]?|[*†‡]")


def read_html(data: bytes, fallback: str = FALLBACK) -> Extracted:
    """Return the text of a page; tables become lines with cells separated by `|`."""
    need("lxml", extra="build")
    from lxml import etree, html

    declared = _CHARSET.search(data[:4096])
    fallbacks = [declared[1].decode("ascii").lower(), fallback] if declared else [fallback]
    text, encoding = decode(data, *fallbacks)
    if not text.strip():
        raise UnreadableFileError("empty")
    parser = html.HTMLParser(
        encoding="utf-8", no_network=True, remove_comments=True, remove_pis=True, huge_tree=False
    )
    try:
        root = html.document_fromstring(text.encode(), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError, ValueError) as problem:
        raise UnreadableFileError(f"not HTML ({problem})") from None
    title = " ".join("".join(root.xpath("//head/title//text()")).split())
    builder = TextBuilder()
    levels: dict[int, str] = {0: title} if title else {}
    for level, block in _blocks(root):
        if level is None:
            builder.add(block, list(dict.fromkeys(levels.values())))
        else:
            levels = {upper: heading for upper, heading in levels.items() if upper < level}
            levels[level] = " ".join(block.split())
    if not builder.text:
        raise UnreadableFileError("the page has no text")
    return Extracted(builder.text, builder.sections, notices=describe_encoding(encoding))


def _blocks(root: Any) -> Iterator[tuple[int | None, str]]:
    """Yield headings with their level and other blocks with None, in document order.

    Written without recursion, because pages may be nested deeper than Python's stack.
    """
    inline: list[str] = []
    stack: list[tuple[Any, int, bool]] = [(root, 0, False)]
    while stack:
        element, depth, is_closing = stack.pop()
        tag = element.tag if isinstance(element.tag, str) else ""
        if is_closing:
            if tag in _BLOCKS:
                yield from _flush(inline)
            inline.append(element.tail or "")
            continue
        if tag in _SKIPPED or depth > _MOST_DEPTH or _is_hidden(element) or _is_reference(element):
            inline.append(element.tail or "")
            continue
        if tag in _HEADINGS:
            yield from _flush(inline)
            yield _HEADINGS[tag], "".join(element.itertext())
            inline.append(element.tail or "")
            continue
        if tag == "tr":
            yield from _flush(inline)
            yield from _flush([_row(element)])
            inline.append(element.tail or "")
            continue
        if tag in _BLOCKS:
            yield from _flush(inline)
        inline.append("\n" if tag == "br" else element.text or "")
        stack.append((element, depth, True))
        stack.extend((child, depth + 1, False) for child in reversed(element))
    yield from _flush(inline)


def _flush(inline: list[str]) -> Iterator[tuple[None, str]]:
    text = "".join(inline).strip()
    inline.clear()
    if text:
        yield None, " ".join(text.split())


def _row(element: Any) -> str:
    cells = (
        " ".join("".join(cell.itertext()).split()) for cell in element if cell.tag in ("td", "th")
    )
    return " | ".join(cell for cell in cells if cell)


def _is_hidden(element: Any) -> bool:
    style = (element.get("style") or "").replace(" ", "").lower()
    return (
        element.get("hidden") is not None
        or element.get("aria-hidden") == "true"
        or "display:none" in style
    )


def _is_reference(element: Any) -> bool:
    """Whether an element is only the number of a footnote or reference."""
    return element.tag == "sup" and bool(_REFERENCE.fullmatch("".join(element.itertext()).strip()))
