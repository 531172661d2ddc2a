"""The named analyzers, from texts to terms: Lucene's English chain, and NanoR2MED's.

Words are found in blocks of text and numbered, and each distinct word is analysed once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import compress
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from r2med.errors import UsageError, nearest
from r2med.retrieve.bm25.lucene import Spans, alphanumeric_spans, classes_of, lower_case, word_spans
from r2med.retrieve.bm25.stem import stem_text, stem_words
from r2med.retrieve.bm25.words import (
    Block,
    ByteWords,
    Group,
    Keys,
    Numbering,
    Places,
    Texts,
    TokenColumns,
    in_threads,
    joined,
    taken,
    text_blocks,
    word_keys,
)
from r2med.runs.run import offsets_of

_LOWER = bytes(range(256)).lower()
_POSSESSIVES = ("'s", "\u2019s", "\uff07s")

Terms = tuple[ByteWords, Places]
"""Terms, and for each of some words the place of its term among them, -1 for none."""


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
        words, keys, groups = self.grouped(texts)
        terms, lengths = zip((np.empty(0, np.int32), np.empty(0, np.int64)), *groups, strict=True)
        return TokenColumns(words, keys, np.concatenate(terms), offsets_of(np.concatenate(lengths)))

    def grouped(self, texts: Texts) -> tuple[ByteWords, Keys, deque[Group]]:
        """All terms ordered by their keys, the keys, and the terms of some thousand rows at a time.

        No more than the words' numbers is held at once.
        """
        numbering, distinct = Numbering(), list[ByteWords]()

        def words_in(block: Block) -> tuple[NDArray[np.uint8], Spans, Keys, Places]:
            """The text in lower case, its words, their keys, and how many each row has."""
            text, row_starts = block
            starts, ends = self.find_words(text)
            lowered = np.frombuffer(text.translate(_LOWER), dtype=np.uint8)
            row_ends = np.append(np.searchsorted(starts, row_starts[1:]), len(starts))
            keys = word_keys(lowered, starts, ends)
            return lowered, (starts, ends), keys, np.diff(row_ends, prepend=0)

        def numbered() -> Iterator[Group]:
            for lowered, (starts, ends), keys, lengths in in_threads(words_in, text_blocks(texts)):
                numbers, fresh = numbering.number(keys)
                distinct.append(ByteWords.cut(lowered, starts[fresh], ends[fresh]))
                yield numbers, lengths

        def terms_of(group: Group) -> Group:
            """The same rows with terms in the place of words, without those that have none."""
            numbers, lengths = group
            terms = term_of[numbers]
            kept = terms >= 0
            before = np.append(np.int32(0), np.cumsum(kept, dtype=np.int32))
            return terms[kept], np.diff(before[offsets_of(lengths)])

        groups = deque(joined(numbered()))
        terms, places = self.to_terms(ByteWords.concatenated(distinct))
        keys, first, inverse = np.unique(terms.keys, return_index=True, return_inverse=True)
        term_of = np.append(inverse, -1).astype(np.int32)[places]
        return terms.take(first), keys, deque(in_threads(terms_of, taken(groups)))


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
    narrow, narrow_places = _ascii_terms(words.take(np.flatnonzero(~wide)))
    beyond, beyond_places = _text_terms([words.text(int(row)) for row in np.flatnonzero(wide)])
    places = np.empty(len(words), dtype=np.int64)
    places[~wide] = narrow_places
    places[wide] = np.where(beyond_places < 0, -1, beyond_places + len(narrow))
    return ByteWords.concatenated([narrow, beyond]), places


def _ascii_terms(words: ByteWords) -> Terms:
    last = words.offsets[1:] - 1
    possessive = (words.lengths > 2) & (words.data[last] == ord("s"))
    possessive[possessive] = words.data[last[possessive] - 1] == ord("'")
    words = words.take(np.arange(len(words)), words.lengths - 2 * possessive)
    kept = ~_stopped(words, "lucene")
    # Connectors alone are found as runs, yet are no words.
    for place in np.flatnonzero(words.data[words.offsets[:-1]] == ord("_")):
        kept[place] &= bool(words.text(int(place)).strip("_"))
    return stem_words(words.take(np.flatnonzero(kept)), "martin"), _places(kept)


def _text_terms(words: list[str]) -> Terms:
    """The same chain for words beyond ASCII, of which there are few."""
    stop_words = _stop_words("lucene")
    lowered = [
        (word[:-2] if word.endswith(_POSSESSIVES) else word).translate(lower_case())
        for word in words
    ]
    kept = [term not in stop_words and set(classes_of(term)) != {"_"} for term in lowered]
    terms = stem_text(list(compress(lowered, kept)), "martin")
    return ByteWords.of(terms), _places(np.array(kept, dtype=np.bool_))


def _nano_terms(words: ByteWords) -> Terms:
    """Stop words, then NLTK's Porter."""
    kept = ~_stopped(words, "nano")
    return stem_words(words.take(np.flatnonzero(kept)), "nltk"), _places(kept)


def _places(kept: NDArray[np.bool_]) -> Places:
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
