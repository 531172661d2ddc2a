"""JATS XML, the format of PubMed Central: title, abstract, sections, tables and footnotes.

References to the bibliography and the bibliography itself are left out.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

from r2med.build.readers.extracted import Extracted, TextBuilder, UnreadableFileError
from r2med.errors import need

_SKIPPED = frozenset(
    ["ref-list", "tex-math", "object-id", "graphic", "inline-graphic", "media",
     "supplementary-material", "label", "permissions", "related-article", "contrib-group"]
)  # fmt: skip
_BLOCKS = frozenset(["p", "disp-quote", "list-item", "def-item", "disp-formula", "verse-group"])
_CONTAINERS = frozenset(
    ["abstract", "alternatives", "trans-abstract", "body", "sec", "boxed-text", "list", "def-list",
     "fig", "fig-group", "table-wrap", "table-wrap-foot", "caption", "ack", "app", "app-group",
     "back", "fn-group", "fn", "notes", "sub-article", "response", "floats-group", "statement"]
)  # fmt: skip
#: Headings of sections that have none.
_NAMES = {
    "abstract": "Abstract",
    "trans-abstract": "Abstract",
    "fn-group": "Footnotes",
    "table-wrap-foot": "Footnotes",
    "ack": "Acknowledgements",
}
_ENTITY = re.compile(rb"&([A-Za-z][A-Za-z0-9]{1,30});")
_PREDEFINED = frozenset([b"amp", b"lt", b"gt", b"quot", b"apos"])
_EMPTY_BRACKETS = re.compile(r"\s?[\[(]\s*(?:[,;–-]\s*)*[\])]")
_LICENCES = (
    (re.compile(r"publicdomain/zero|\bCC0\b", re.I), "CC0"),
    (re.compile(r"licenses/(by(?:-nc)?(?:-nd|-sa)?)/(\d\.\d)", re.I), ""),
)
_MOST_DEPTH = 200


def read_jats(data: bytes) -> list[Extracted]:
    """Return the articles of a file.

    Raises:
        UnreadableFileError: The file is not well-formed XML, or has no article with text.
    """
    root = _parse(data)
    articles = [root] if _local(root) == "article" else list(_find_all(root, "article"))
    if not articles:
        raise UnreadableFileError(f"not JATS: no <article> below <{_local(root)}>")
    extracted = [_read_article(article) for article in articles]
    if not any(article.text for article in extracted):
        raise UnreadableFileError("no text in the article")
    return [article for article in extracted if article.text]


def _parse(data: bytes) -> Any:
    need("lxml", extra="build")
    from lxml import etree

    problem: Exception | None = None
    for content in (data, _ENTITY.sub(_replace_entity, data)):
        parser = etree.XMLParser(
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            dtd_validation=False,
            huge_tree=False,
            remove_comments=True,
            remove_pis=True,
        )
        try:
            return etree.fromstring(content, parser)
        except (etree.XMLSyntaxError, ValueError) as error:
            problem = problem or error
    raise UnreadableFileError(f"not well-formed XML ({problem})")


def _replace_entity(match: re.Match[bytes]) -> bytes:
    """Return an HTML entity, unknown in XML, as its number; return other entities unchanged."""
    if match[1] in _PREDEFINED:
        return match[0]
    character = html.unescape(match[0].decode("ascii"))
    return (
        match[0]
        if character.startswith("&")
        else "".join(f"&#{ord(part)};" for part in character).encode()
    )


def _read_article(article: Any) -> Extracted:
    builder = TextBuilder()
    title = _first_text(article, "article-title")
    for element in article:
        name = _local(element)
        if name == "front":
            for abstract in (
                *_find_all(element, "abstract"),
                *_find_all(element, "trans-abstract"),
            ):
                _add(builder, abstract, [title])
        elif name in _CONTAINERS:
            _add(builder, element, [title])
    return Extracted(
        builder.text,
        builder.sections,
        name=_article_id(article),
        licence=_licence(article),
    )


def _add(builder: TextBuilder, root: Any, headings: list[str]) -> None:
    """Add the blocks below an element, in document order and without recursion."""
    stack: list[tuple[Any, list[str]]] = [(root, headings)]
    while stack:
        element, above = stack.pop()
        name = _local(element)
        if name in _SKIPPED or len(stack) > 1_000_000:
            continue
        if name == "table":
            for row in _find_all(element, "tr"):
                cells = (_plain(cell) for cell in row if _local(cell) in ("td", "th"))
                builder.add(" | ".join(cell for cell in cells if cell), above)
        elif name in _BLOCKS and not _has_blocks(element):
            builder.add(_plain(element), above)
        elif name in _CONTAINERS or name in _BLOCKS:
            own_title = next((_plain(c) for c in element if _local(c) == "title"), "")
            heading = own_title or _NAMES.get(name, "")
            below = [*above, heading] if heading and len(above) < _MOST_DEPTH else above
            children = [child for child in element if _local(child) != "title"]
            stack.extend((child, below) for child in reversed(children))
            if name in _BLOCKS and (element.text or "").strip():
                builder.add(_clean(element.text), above)


def _has_blocks(element: Any) -> bool:
    inner = _BLOCKS | {"table", "list", "def-list", "boxed-text", "fig", "table-wrap"}
    return any(_local(child) in inner for child in element)


def _plain(element: Any) -> str:
    return _clean("".join(_texts(element)))


def _texts(root: Any) -> Iterator[str]:
    """Yield the text of an element without references and formula source."""
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        element, is_tail = stack.pop()
        if is_tail:
            yield element.tail or ""
            continue
        if element is not root:
            stack.append((element, True))
        if not isinstance(element.tag, str):  # an entity that the file defines or an unknown name
            name = getattr(element, "name", "")
            character = html.unescape(f"&{name};") if name else ""
            yield "" if character.startswith("&") else character
            continue
        is_citation = _local(element) == "xref" and element.get("ref-type") in ("bibr", "fn")
        if is_citation or (_local(element) in _SKIPPED and element is not root):
            continue
        yield element.text or ""
        stack.extend((child, False) for child in reversed(element))


def _clean(text: str) -> str:
    return " ".join(_EMPTY_BRACKETS.sub("", " ".join(text.split())).split())


def _local(element: Any) -> str:
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def _find_all(element: Any, name: str) -> Iterator[Any]:
    """Yield descendants by local name, whatever their namespace."""
    descendants = element.iterdescendants()
    return (descendant for descendant in descendants if _local(descendant) == name)


def _first_text(element: Any, name: str) -> str:
    first = next(_find_all(element, name), None)
    return "" if first is None else _plain(first)


def _article_id(article: Any) -> str:
    """Return the PMC id, DOI or PubMed id."""
    ids: dict[str, str] = {}
    for element in _find_all(article, "article-id"):
        ids.setdefault(element.get("pub-id-type", ""), _plain(element))
    if "pmc" in ids:
        return f"PMC{ids['pmc'].removeprefix('PMC')}"
    return ids.get("pmcid") or ids.get("doi") or (f"PMID{ids['pmid']}" if "pmid" in ids else "")


def _licence(article: Any) -> str:
    """Return the article's licence in its usual short form; an unknown licence as its address."""
    addresses = []
    for element in (*_find_all(article, "license"), *_find_all(article, "license_ref")):
        addresses += [value for name, value in element.attrib.items() if name.endswith("href")]
        addresses += [_plain(element)] if _local(element) == "license_ref" else []
    for address in addresses:
        for pattern, short in _LICENCES:
            if match := pattern.search(address):
                return short or f"CC {match[1].upper()} {match[2]}"
    return addresses[0] if addresses else ""
