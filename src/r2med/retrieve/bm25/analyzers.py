"""The named analyzers, from texts to terms: Lucene's English chain, and NanoR2MED's.

Words are found in blocks of text and numbered, and each distinct word is analysed once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from r2med.errors import UsageError, nearest
from r2med.retrieve.bm25.lucene import Spans, alphanumeric_spans, classes_of, lower_case, word_spans
from r2med.retrieve.bm25.stem import stem_ascii, stem_text
from r2med.retrieve.bm25.words import (
    Block,
    ByteWords,
    Group,
    Keys,
    Numbering,
    Places,
    Texts,
    TokenColumns,
    TokenGroups,
    in_threads,
    joined,
    text_blocks,
    word_keys,
)
from r2med.runs.run import offsets_of

_LOWER = bytes(range(256)).lower()
_POSSESSIVES = ("'s", "\u2019s", "\uff07s")


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
        tokens = self.grouped(texts)
        groups = [tokens.terms(group) for group in tokens.taken()]
        return TokenColumns(
            words=tokens.words,
            keys=tokens.keys,
            terms=np.concatenate([np.empty(0, dtype=np.int32), *(terms for terms, _ in groups)]),
            offsets=offsets_of(np.concatenate([np.empty(0, np.int64), *(n for _, n in groups)])),
        )

    def grouped(self, texts: Texts) -> TokenGroups:
        """The same for a whole corpus, of which no more than its words' numbers is held at once."""
        numbering = Numbering()
        distinct: list[ByteWords] = []

        def words_in(block: Block) -> tuple[NDArray[np.uint8], Spans, Keys, Places]:
            """The text in lower case, its words, their keys, and how many each row has."""
            text, row_starts = block
            spans = self.find_words(text)
            lowered = np.frombuffer(text.translate(_LOWER), dtype=np.uint8)
            ends = np.append(np.searchsorted(spans.starts, row_starts[1:]), len(spans.starts))
            keys = word_keys(lowered, spans.starts, spans.ends)
            return lowered, spans, keys, np.diff(ends, prepend=0)

        def numbered() -> Iterator[Group]:
            for lowered, spans, keys, lengths in in_threads(words_in, text_blocks(texts)):
                numbers, fresh = numbering.number(keys)
                distinct.append(ByteWords.cut(lowered, spans.starts[fresh], spans.ends[fresh]))
                yield numbers, lengths

        groups = deque(joined(numbered()))
        terms = self.to_terms(ByteWords.concatenated(distinct))
        keys, first, inverse = np.unique(terms.words.keys, return_index=True, return_inverse=True)
        number_of = np.append(inverse, -1).astype(np.int32)[terms.places]
        return TokenGroups(terms.words.take(first), keys, number_of, groups)


def find_analyzer(name: str) -> Analyzer:
    """The analyzer of this name, or an error that offers the known ones."""
    if name not in ANALYZERS:
        raise UsageError(f"analyzer {name!r} is not known. {nearest(name, ANALYZERS)}")
    return ANALYZERS[name]


def _lucene_terms(words: ByteWords) -> Terms:
    """English possessive, lower case, stop words, Porter."""
    wide = np.zeros(len(words), dtype=np.bool_)
    if len(words):
        wide = np.maximum.reduceat(words.data, words.offsets[:-1]) >= 0x80
    narrow = _ascii_terms(words.take(np.flatnonzero(~wide)))
    beyond = _text_terms([words.text(int(place)) for place in np.flatnonzero(wide)])
    places = np.empty(len(words), dtype=np.int64)
    places[~wide] = narrow.places
    places[wide] = np.where(beyond.places < 0, -1, beyond.places + len(narrow.words))
    return Terms(ByteWords.concatenated([narrow.words, beyond.words]), places)


def _ascii_terms(words: ByteWords) -> Terms:
    last = words.offsets[1:] - 1
    possessive = (words.lengths > 2) & (words.data[last] == ord("s"))
    possessive[possessive] = words.data[last[possessive] - 1] == ord("'")
    words = words.take(np.arange(len(words)), words.lengths - 2 * possessive)
    kept = ~_stopped(words, "lucene")
    # Connectors alone are found as runs, yet are no words.
    for place in np.flatnonzero(words.data[words.offsets[:-1]] == ord("_")):
        kept[place] &= bool(words.text(int(place)).strip("_"))
    return Terms(stem_ascii(words.take(np.flatnonzero(kept)), "martin"), _places(kept))


def _text_terms(words: list[str]) -> Terms:
    """The same chain for words beyond ASCII, of which there are few."""
    stop_words = _stop_words("lucene")
    lowered = []
    kept = np.zeros(len(words), dtype=np.bool_)
    for place, word in enumerate(words):
        term = (word[:-2] if word.endswith(_POSSESSIVES) else word).translate(lower_case())
        if term not in stop_words and set(classes_of(term)) != {"_"}:
            lowered.append(term)
            kept[place] = True
    return Terms(ByteWords.of(stem_text(lowered, "martin")), _places(kept))


def _nano_terms(words: ByteWords) -> Terms:
    """Stop words, then NLTK's Porter."""
    kept = ~_stopped(words, "nano")
    return Terms(stem_ascii(words.take(np.flatnonzero(kept)), "nltk"), _places(kept))


def _places(kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.where(kept, np.cumsum(kept) - 1, -1)


def _stopped(words: ByteWords, name: str) -> NDArray[np.bool_]:
    return np.isin(words.keys, ByteWords.of(sorted(_stop_words(name))).keys)


@cache
def _stop_words(name: str) -> frozenset[str]:
    path = Path(__file__).with_name(f"{name}_stop_words.txt")
    return frozenset(path.read_text(encoding="utf-8").split())


#: The known analyzers. A test pins what they answer: change an answer, then raise the identity.
ANALYZERS: Mapping[str, Analyzer] = MappingProxyType(
    {
        "lucene": Analyzer("lucene", "lucene-english-1", word_spans, _lucene_terms),
        "nano": Analyzer("nano", "nano-1", alphanumeric_spans, _nano_terms),
    }
)
