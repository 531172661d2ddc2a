"""What the named analyzers make of words: Lucene's English chain, and NanoR2MED's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from r2med.errors import UsageError, nearest
from r2med.retrieve.bm25.analysis.analyzer import Analyzer, Terms
from r2med.retrieve.bm25.analysis.byte_words import ByteWords
from r2med.retrieve.bm25.analysis.code_points import classes_of, lower_case
from r2med.retrieve.bm25.analysis.spans import alphanumeric_spans, word_spans
from r2med.retrieve.bm25.analysis.stemming import stem_ascii, stem_text

_POSSESSIVES = ("'s", "\u2019s", "\uff07s")


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
    words = words.take(np.arange(len(words)), words.lengths - 2 * _possessive(words))
    kept = ~_stopped(words, "lucene")
    kept &= _holds_more_than(words, "_")
    return Terms(stem_ascii(words.take(np.flatnonzero(kept)), "martin"), _places(kept))


def _possessive(words: ByteWords) -> NDArray[np.bool_]:
    last = words.offsets[1:] - 1
    ends: NDArray[np.bool_] = (words.lengths > 2) & (words.data[last] == ord("s"))
    ends[ends] = words.data[last[ends] - 1] == ord("'")
    return ends


def _holds_more_than(words: ByteWords, filler: str) -> NDArray[np.bool_]:
    """Whether a word has any other character: connectors alone are found as runs, yet no words."""
    starts = np.flatnonzero(words.data[words.offsets[:-1]] == ord(filler))
    holds = np.ones(len(words), dtype=np.bool_)
    holds[starts] = [bool(words.text(int(start)).strip(filler)) for start in starts]
    return holds


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
