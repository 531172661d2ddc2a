"""Split the sections of a document at sentences, and regroup sentences to passages of equal size.

A token is a word, a number, a punctuation mark or a Chinese or Japanese character. This count is
our own, not that of a model's tokenizer. The size of a passage is a setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from r2med.build.readers.extracted import Extracted
from r2med.build.readers.plain import clean_markdown

Span = tuple[int, int]

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
#: Words longer than 100 characters count as several, so that no passage grows without limit.
_TOKEN = re.compile(rf"[{_CJK}]|[^\W{_CJK}]{{1,100}}|[^\w\s]")
_BOUNDARY = re.compile(
    r"[.!?…]{1,9}[\"'”’)\]]{0,5}(?=\s+[\"'“‘(\[]?[A-Z0-9À-ÖØ-ÞΑ-ΩА-Я])"
    r"|[。！？][”’」』）]{0,5}"
    r"|\n[ \t]*(?=\n)"
    r"|\n(?=[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t])"
)
_LAST_WORD = re.compile(r"[A-Za-z.]+$")
_ABBREVIATIONS = frozenset(
    ["dr", "mr", "mrs", "ms", "prof", "st", "vs", "e.g", "i.e", "etc", "cf", "fig", "figs", "eq",
     "no", "nos", "ca", "approx", "resp", "al", "ref", "refs", "vol", "pp", "sp", "spp", "subsp",
     "var", "jr", "sr", "dept", "tab", "sec", "viz", "incl", "max", "min"]
)  # fmt: skip
_EMPTY_LINE = re.compile(r"\n\s*\n")
#: A sentence is cut if it has more tokens than this many passages.
_MOST_PASSAGES = 2


@dataclass(frozen=True)
class Passage:
    """A part of one section."""

    text: str
    section: str
    start: int
    end: int
    page: int | None
    tokens: int


def make_passages(document: Extracted, tokens: int) -> Iterator[Passage]:
    """Yield the passages of a document, each of about `tokens` tokens and within one section.

    The text of a passage is `document.text[start:end]` with its white space made regular, and
    without marks of Markdown.
    """
    for section in document.sections:
        spans = split_sentences(document.text, section.start, section.end)
        sized = [
            (part, size)
            for span in spans
            for part, size in _cut(document.text, span, tokens)
            if size
        ]
        for (start, end), size in _regroup(sized, tokens):
            text = document.text[start:end]
            if document.is_markdown:
                text = clean_markdown(text)
            regular = regularise(text)
            if regular:
                page = document.page_at(start)
                yield Passage(regular, section.heading, start, end, page, size)


def regularise(text: str) -> str:
    """Return a text with one space between words and one line break between paragraphs."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in _EMPTY_LINE.split(text))
    return "\n".join(paragraph for paragraph in paragraphs if paragraph)


def split_sentences(text: str, start: int = 0, end: int | None = None) -> list[Span]:
    """Return the offsets of the sentences in a part of a text, without space around them."""
    last = len(text) if end is None else end
    spans, first = [], start
    for match in _BOUNDARY.finditer(text, start, last):
        if match[0].startswith(".") and _is_abbreviation(text, first, match.start()):
            continue
        spans.append((first, match.end()))
        first = match.end()
    spans.append((first, last))
    return [stripped for span in spans if (stripped := _strip(text, span))]


def count_tokens(text: str) -> int:
    """Count words, numbers, punctuation marks, and Chinese and Japanese characters."""
    return len(_TOKEN.findall(text))


def _is_abbreviation(text: str, start: int, dot: int) -> bool:
    """Whether the dot ends an abbreviation or an initial rather than a sentence."""
    match = _LAST_WORD.search(text, max(start, dot - 12), dot)
    if match is None:
        return False
    word = match[0].lower()
    is_initial = len(word) == 1 and match[0].isupper()
    return is_initial or word in _ABBREVIATIONS


def _strip(text: str, span: Span) -> Span | None:
    start, end = span
    part = text[start:end]
    left = len(part) - len(part.lstrip())
    right = len(part.rstrip())
    return (start + left, start + right) if right > left else None


def _cut(text: str, span: Span, tokens: int) -> Iterator[tuple[Span, int]]:
    """Yield a sentence and its number of tokens; a much too long sentence is cut into parts."""
    size = count_tokens(text[span[0] : span[1]])
    if size <= _MOST_PASSAGES * tokens:
        yield span, size
        return
    starts = [match.start() for match in _TOKEN.finditer(text, span[0], span[1])][::tokens]
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else span[1]
        part = _strip(text, (start, end))
        if part is not None:
            yield part, count_tokens(text[part[0] : part[1]])


def _regroup(sentences: Sequence[tuple[Span, int]], tokens: int) -> Iterator[tuple[Span, int]]:
    """Join consecutive sentences to passages of nearly equal size, of about `tokens` tokens."""
    total = sum(size for _, size in sentences)
    if not total:
        return
    ideal = total / max(1, round(total / tokens))
    start, end, collected = sentences[0][0][0], 0, 0
    for (sentence_start, sentence_end), size in sentences:
        is_farther = abs(collected + size - ideal) > abs(collected - ideal)
        if collected and is_farther:
            yield (start, end), collected
            start, collected = sentence_start, 0
        end, collected = sentence_end, collected + size
    yield (start, end), collected
