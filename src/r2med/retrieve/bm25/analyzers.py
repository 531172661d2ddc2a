"""The analyzers, which convert texts to terms: Lucene's English analyzer, and NanoR2MED's.

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
import pyarrow as pa
from numpy.typing import NDArray

from r2med.algorithms import versions
from r2med.errors import UsageError, nearest
from r2med.retrieve.bm25.lucene import (
    Spans,
    alphanumeric_spans,
    classes_of,
    lower_case,
    word_spans,
)
from r2med.retrieve.bm25.stem import stem_text, stem_words
from r2med.retrieve.bm25.words import (
    ByteWords,
    Keys,
    NumberedRows,
    Numbering,
    Numbers,
    Positions,
    TextBlock,
    Texts,
    TokenColumns,
    group_rows,
    split_into_blocks,
    word_keys,
)
from r2med.retrieve.threads import drain, map_in_threads
from r2med.runs.run import offsets_of
from r2med.storage import release_memory

_LOWER_CASE = bytes(range(256)).lower()
_POSSESSIVES = ("'s", "\u2019s", "\uff07s")
#: Word numbers that are held before they are replaced by terms: 128 MiB.
_BATCH_WORDS = 1 << 25


@dataclass(frozen=True, eq=False)
class WordTerms:
    """The terms of words: word `i` has the term `terms[indexes[i]]`, or none if its index is -1."""

    terms: ByteWords
    indexes: Positions


@dataclass(frozen=True)
class Analyzer:
    """Converts texts to terms.

    `find_words` is called with a block of text. `to_terms` is called with distinct words whose
    ASCII letters are in lower case.
    """

    name: str
    title: str
    algorithm: str
    """The analyzer's name in `r2med.algorithms`; the version there changes if the terms change."""
    find_words: Callable[[bytes], Spans]
    to_terms: Callable[[ByteWords], WordTerms]

    @property
    def identity(self) -> str:
        """Part of the keys of results and cached indexes."""
        [version] = versions(self.algorithm).values()
        return f"{self.title}-{version}"

    def analyze(self, texts: Texts) -> TokenColumns:
        """Return the terms of every text; a null is read as an empty text."""
        stream = TermStream(self, texts)
        groups = list(stream.groups())
        numbers = np.concatenate([np.empty(0, np.int32), *(group.numbers for group in groups)])
        lengths = np.concatenate([np.empty(0, np.int64), *(group.lengths for group in groups)])
        terms = stream.sorted_terms()
        return TokenColumns(terms.words, terms.keys, terms.ranks[numbers], offsets_of(lengths))


def find_analyzer(name: str) -> Analyzer:
    """Return the analyzer of this name; the error for an unknown name suggests similar ones."""
    if name not in ANALYZERS:
        raise UsageError(f"analyzer {name!r} is not known. {nearest(name, ANALYZERS)}")
    return ANALYZERS[name]


@dataclass(frozen=True, eq=False)
class SortedTerms:
    """Distinct terms sorted by key.

    `ranks[n]` is the position of the term that the stream numbered n.
    """

    words: ByteWords
    keys: Keys
    ranks: Numbers


@dataclass(frozen=True, eq=False)
class _BlockWords:
    """The words of a block of text; `codes` has the index of each among the distinct words."""

    codes: Numbers
    lengths: Positions
    lowered: NDArray[np.uint8]
    distinct_keys: Keys
    distinct_starts: Positions
    distinct_ends: Positions


class TermStream:
    """Converts many texts to terms, which are numbered in order of first appearance.

    Only the word numbers of one batch of texts are in memory at a time.
    """

    def __init__(self, analyzer: Analyzer, texts: Texts) -> None:
        self._analyzer = analyzer
        self._texts = texts
        self._word_numbering = Numbering()
        self._term_numbering = Numbering()
        self._new_words: list[ByteWords] = []
        self._term_words: list[ByteWords] = []
        self._term_keys: list[Keys] = []
        #: The term of every word number, -1 for words without a term.
        self._term_of_word = np.empty(0, dtype=np.int32)

    def groups(self) -> Iterator[NumberedRows]:
        """Yield the terms of all texts, in groups of consecutive texts."""
        batch: deque[NumberedRows] = deque()
        words = 0
        for group in group_rows(self._number_words()):
            batch.append(group)
            words += len(group.numbers)
            if words >= _BATCH_WORDS:
                yield from self._replace_words(batch)
                words = 0
        yield from self._replace_words(batch)

    def sorted_terms(self) -> SortedTerms:
        """Return all distinct terms; call this after the last of `groups`."""
        keys = np.concatenate([np.empty(0, np.uint64), *self._term_keys])
        order = np.argsort(keys)
        ranks = np.empty(len(keys), dtype=np.int32)
        ranks[order] = np.arange(len(keys), dtype=np.int32)
        words = ByteWords.concatenate(self._term_words).take(order)
        return SortedTerms(words, keys[order], ranks)

    def _number_words(self) -> Iterator[NumberedRows]:
        for block in map_in_threads(self._find_words, split_into_blocks(self._texts)):
            numbers, new = self._word_numbering.number(block.distinct_keys)
            starts, ends = block.distinct_starts[new], block.distinct_ends[new]
            self._new_words.append(ByteWords.cut(block.lowered, starts, ends))
            yield NumberedRows(numbers[block.codes], block.lengths)

    def _find_words(self, block: TextBlock) -> _BlockWords:
        starts, ends = self._analyzer.find_words(block.text)
        lowered = np.frombuffer(block.text.translate(_LOWER_CASE), dtype=np.uint8)
        words_before_row = np.searchsorted(starts, block.row_starts)
        encoded = pa.array(word_keys(lowered, starts, ends)).dictionary_encode()
        codes = encoded.indices.to_numpy()
        # Codes count up in order of first appearance, so each new one is a new maximum.
        first = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))
        return _BlockWords(
            codes=codes,
            lengths=np.diff(words_before_row, append=len(starts)),
            lowered=lowered,
            distinct_keys=encoded.dictionary.to_numpy(),
            distinct_starts=starts[first],
            distinct_ends=ends[first],
        )

    def _replace_words(self, batch: deque[NumberedRows]) -> Iterator[NumberedRows]:
        """Yield the groups with the numbers of terms instead of words.

        Words without a term are dropped.
        """
        if len(batch) > 1:
            release_memory()
        self._analyze_new_words()
        yield from map_in_threads(self._replace_words_of_group, drain(batch))

    def _analyze_new_words(self) -> None:
        analysed = self._analyzer.to_terms(ByteWords.concatenate(self._new_words))
        keys = analysed.terms.keys
        numbers, new = self._term_numbering.number(keys)
        self._term_words.append(analysed.terms.take(new))
        self._term_keys.append(keys[new])
        number_or_none = np.append(numbers, np.int32(-1))  # index -1 is the last element
        self._term_of_word = np.append(self._term_of_word, number_or_none[analysed.indexes])
        self._new_words = []

    def _replace_words_of_group(self, group: NumberedRows) -> NumberedRows:
        terms = self._term_of_word[group.numbers]
        has_term = terms >= 0
        terms_before = np.append(np.int32(0), np.cumsum(has_term, dtype=np.int32))
        return NumberedRows(terms[has_term], np.diff(terms_before[offsets_of(group.lengths)]))


def _lucene_terms(words: ByteWords) -> WordTerms:
    """Return terms as Lucene does: without possessive 's and stop words, in lower case, stemmed."""
    is_ascii = np.ones(len(words), dtype=np.bool_)
    if len(words):
        is_ascii = np.maximum.reduceat(words.data, words.offsets[:-1]) < 0x80
    other_words = [words.text(int(index)) for index in np.flatnonzero(~is_ascii)]
    ascii_terms = _ascii_lucene_terms(words.take(np.flatnonzero(is_ascii)))
    other_terms = _other_lucene_terms(other_words)
    indexes = np.empty(len(words), dtype=np.int64)
    indexes[is_ascii] = ascii_terms.indexes
    indexes[~is_ascii] = np.where(
        other_terms.indexes < 0, -1, other_terms.indexes + len(ascii_terms.terms)
    )
    return WordTerms(ByteWords.concatenate([ascii_terms.terms, other_terms.terms]), indexes)


def _ascii_lucene_terms(words: ByteWords) -> WordTerms:
    last = words.offsets[1:] - 1
    is_possessive = (words.lengths > 2) & (words.data[last] == ord("s"))
    is_possessive[is_possessive] = words.data[last[is_possessive] - 1] == ord("'")
    words = words.take(np.arange(len(words)), words.lengths - np.where(is_possessive, 2, 0))
    has_term = ~_are_stop_words(words, "lucene")
    # The tokenizer finds runs of underscores, but they are not words.
    for index in np.flatnonzero(words.data[words.offsets[:-1]] == ord("_")):
        if not words.text(int(index)).strip("_"):
            has_term[index] = False
    return WordTerms(
        stem_words(words.take(np.flatnonzero(has_term)), "martin"), _term_indexes(has_term)
    )


def _other_lucene_terms(words: list[str]) -> WordTerms:
    """Return the same as `_lucene_terms` for words beyond ASCII, one word at a time."""
    stop_words = _stop_words("lucene")
    without_possessive = [word[:-2] if word.endswith(_POSSESSIVES) else word for word in words]
    lowered = [word.translate(lower_case()) for word in without_possessive]
    has_term = [word not in stop_words and set(classes_of(word)) != {"_"} for word in lowered]
    terms = stem_text(list(compress(lowered, has_term)), "martin")
    return WordTerms(
        ByteWords.from_strings(terms), _term_indexes(np.array(has_term, dtype=np.bool_))
    )


def _nano_terms(words: ByteWords) -> WordTerms:
    """Return terms as NanoR2MED does: without stop words, stemmed as by NLTK's Porter stemmer."""
    has_term = ~_are_stop_words(words, "nano")
    return WordTerms(
        stem_words(words.take(np.flatnonzero(has_term)), "nltk"), _term_indexes(has_term)
    )


def _term_indexes(has_term: NDArray[np.bool_]) -> Positions:
    """Return consecutive numbers for the words that have a term, and -1 for the other words."""
    return np.where(has_term, np.cumsum(has_term) - 1, -1)


def _are_stop_words(words: ByteWords, name: str) -> NDArray[np.bool_]:
    return np.isin(words.keys, ByteWords.from_strings(sorted(_stop_words(name))).keys)


@cache
def _stop_words(name: str) -> frozenset[str]:
    path = Path(__file__).with_name(f"{name}_stop_words.txt")
    return frozenset(path.read_text(encoding="utf-8").split())


#: The known analyzers.
ANALYZERS: Mapping[str, Analyzer] = MappingProxyType(
    {
        "lucene": Analyzer(
            "lucene", "lucene-english", "lucene-analysis", word_spans, _lucene_terms
        ),
        "nano": Analyzer("nano", "nano", "nano-analysis", alphanumeric_spans, _nano_terms),
    }
)
