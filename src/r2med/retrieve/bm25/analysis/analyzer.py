"""From texts to terms, in bulk: find the words of a block, number them, analyse each word once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.bm25.analysis.blocks import Block, Texts, text_blocks
from r2med.retrieve.bm25.analysis.byte_words import ByteWords
from r2med.retrieve.bm25.analysis.intern import PADDING, Keys, Numbering, word_keys
from r2med.retrieve.bm25.analysis.spans import Spans
from r2med.retrieve.bm25.analysis.tokens import TokenColumns
from r2med.retrieve.bm25.threads import in_threads

_LOWER = bytes(range(256)).lower()


@dataclass(frozen=True)
class Terms:
    """What distinct words become: `places[i]` is the term of word `i` in `words`, -1 for none."""

    words: ByteWords
    places: NDArray[np.int64]


@dataclass(frozen=True)
class Analyzer:
    """A named way from text to terms.

    `identity` stands for the behaviour in cached indexes: it changes whenever any text's terms do.
    `find_words` gets a block of text, `to_terms` distinct words with their ASCII letters lowered.
    """

    name: str
    identity: str
    find_words: Callable[[bytes], Spans]
    to_terms: Callable[[ByteWords], Terms]

    def analyze(self, texts: Texts) -> TokenColumns:
        """The terms of every text; a null is an empty text."""
        numbering = Numbering()
        distinct: list[ByteWords] = []
        found: list[tuple[NDArray[np.int32], NDArray[np.int64]]] = []
        for words in in_threads(self._block_words, text_blocks(texts, padding=PADDING)):
            numbers, fresh = numbering.number(words.keys)
            distinct.append(
                ByteWords.cut(words.text, words.spans.starts[fresh], words.spans.ends[fresh])
            )
            found.append((numbers, words.row_ends))
        return _columns(self.to_terms(ByteWords.concatenated(distinct)), found)

    def _block_words(self, block: Block) -> _BlockWords:
        text, row_starts = block
        spans = self.find_words(text)
        lowered = np.frombuffer(text.translate(_LOWER), dtype=np.uint8)
        row_ends = np.searchsorted(spans.starts, row_starts[1:])
        return _BlockWords(
            text=lowered,
            spans=spans,
            keys=word_keys(lowered, spans.starts, spans.ends),
            row_ends=np.append(row_ends, len(spans.starts)),
        )


@dataclass(frozen=True)
class _BlockWords:
    """The words of one block; `row_ends` counts the words up to the end of each row."""

    text: NDArray[np.uint8]
    spans: Spans
    keys: Keys
    row_ends: NDArray[np.int64]


def _columns(
    terms: Terms, found: list[tuple[NDArray[np.int32], NDArray[np.int64]]]
) -> TokenColumns:
    """Put terms in the place of words, leaving out what was dropped."""
    keys, first, inverse = np.unique(terms.words.keys, return_index=True, return_inverse=True)
    number_of = np.append(inverse, -1).astype(np.int32)[terms.places]
    columns = [np.empty(0, dtype=np.int32)]
    lengths = [np.zeros(1, dtype=np.int64)]
    for numbers, row_ends in found:
        column = number_of[numbers]
        kept = column >= 0
        before = np.concatenate([[0], np.cumsum(kept)])
        columns.append(column[kept])
        lengths.append(np.diff(before[row_ends], prepend=0))
    return TokenColumns(
        words=terms.words.take(first),
        keys=keys,
        terms=np.concatenate(columns),
        offsets=np.cumsum(np.concatenate(lengths)),
    )
