"""What the words say: terms of a corpus under Lucene's analysis, and who shares which."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.retrieve.bm25.analyzers import TermStream, find_analyzer
from r2med.retrieve.bm25.index import build_index
from r2med.tasks.task import Corpus

Numbers = NDArray[np.int64]
Weights = NDArray[np.float64]
#: How many of a document's weightiest terms stand for its subject.
KEY_TERMS = 20
#: Counts in one document are only weighed by their logarithm, so more than this is as much.
_MOST_COUNTED = 255
#: A term in more than this share of the documents is common.
_COMMON = 0.15
_WORD = re.compile(r"[\w'’.-]*\w")
#: A word, or what hyphens part it into: the analysis makes a term of each.
_PART = re.compile(r"[\w'’.]*\w")


_FUNCTION_WORDS = """
about above after again all also although always am among and another any are around as at be
became because become been before being below between both but by can could did do does doing done
down during each either ever every few for from further get give given go got had has have having he
her here hers herself him himself his how however i if in into is it its itself just last least less
like made make many may me might more most much must my myself neither never no nor not nothing now
of off often on once one only or other others our out over own per rather said same seen several she
should since so some soon still such than that the their them then there these they thing this those
though three through thus time times to together too toward two under until up upon us use used very
was way we well went were what when where whether which while who whole whom whose why will with
within without would yet you your
"""
#: English words that say nothing about a subject, besides those that the analysis leaves out.
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())


def is_informative(word: str) -> bool:
    """Whether a word may say what a text is about: not a function word, number or single letter."""
    return len(word) > 1 and not word[0].isdigit() and word.lower() not in FUNCTION_WORDS


class Piece(NamedTuple):
    """A piece of a text, and how its words are shared with a query."""

    text: str
    weight: int = 0
    """0 if it is not marked, up to 3 for the rarest shared words."""
    is_generated: bool = False
    """Whether only a generated text shares it, not the query itself."""


def _pieces(text: str, words: Sequence[re.Match[str]], marked: Mapping[str, Piece]) -> list[Piece]:
    pieces, end = [], 0
    for match in words:
        if piece := marked.get(match[0]):
            if match.start() > end:
                pieces.append(Piece(text[end : match.start()]))
            pieces.append(piece)
            end = match.end()
    if end < len(text) or not pieces:
        pieces.append(Piece(text[end:]))
    return pieces


class Lexicon:
    """A corpus as a matrix of documents by terms, each weighted by how rare it is."""

    def __init__(self, corpus: Corpus) -> None:
        from scipy.sparse import csc_array  # takes longer to import than most commands

        self._analyzer = find_analyzer("lucene")
        names = corpus.document_ids.to_pylist()
        repeated = len(names) < len(corpus)
        self._texts = corpus.texts.take(pa.array(corpus.last_rows)) if repeated else corpus.texts
        self._index = build_index(TermStream(self._analyzer, self._texts))
        self._rows = {name: row for row, name in enumerate(names)}
        counts = np.minimum(self._index.counts, _MOST_COUNTED).astype(np.uint8)
        columns = (counts, self._index.rows, self._index.offsets)
        self._by_term = csc_array(columns, shape=(len(names), len(self._index.keys)))
        self._counts = self._by_term.tocsr()
        self._stems: dict[str, list[str]] = {}
        frequencies = np.diff(self._by_term.indptr)
        self.rarity: Weights = np.log(len(names) + 1) - np.log(frequencies + 0.5)

    def row(self, document_id: str) -> int | None:
        """The place of a document; None when the corpus does not hold it."""
        return self._rows.get(document_id)

    def queries(self, texts: pa.LargeStringArray) -> list[Numbers]:
        """The distinct terms of every text that the corpus knows."""
        tokens = self._analyzer.analyze(texts)
        place_of = self._index.find(tokens.keys)
        queries = []
        for start, end in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True):
            own = place_of[np.unique(tokens.terms[start:end])]
            queries.append(own[own >= 0])
        return queries

    def coverage(self, query: Numbers) -> Weights:
        """For every document the share of the query's terms it holds, rare terms weighing more."""
        weights = self.rarity[query]
        if not len(weights) or weights.sum() <= 0:
            return np.zeros(self._counts.shape[0])
        held = self._by_term[:, query].astype(bool).astype(np.float64)
        shares: Weights = (held @ weights) / weights.sum()
        return shares

    def _terms(self, row: int) -> tuple[Numbers, NDArray[np.uint8]]:
        """The distinct terms of a document and how often it has each."""
        part = slice(self._counts.indptr[row], self._counts.indptr[row + 1])
        return self._counts.indices[part], self._counts.data[part]

    def key_terms(self, row: int, query: Numbers) -> Numbers:
        """The weightiest terms of a document that the query lacks: its subject beyond the query."""
        terms, counts = self._terms(row)
        own = ~np.isin(terms, query)
        weights = self.rarity[terms[own]] * (1 + np.log(counts[own]))
        best: Numbers = terms[own][np.lexsort((terms[own], -weights))][:KEY_TERMS]
        return best

    def share(self, terms: Numbers, row: int) -> float:
        """The part of some terms' weight that a document holds."""
        weights = self.rarity[terms]
        total = float(weights.sum())
        shared = float(weights[np.isin(terms, self._terms(row)[0])].sum())
        return shared / total if total > 0 else 0.0

    def likeness(self, a: int, b: int) -> float:
        """Terms in common over all terms of two documents (Jaccard)."""
        first, second = self._terms(a)[0], self._terms(b)[0]
        common = len(np.intersect1d(first, second, assume_unique=True))
        union = len(first) + len(second) - common
        return common / union if union else 1.0

    def shared_terms(self, query: Numbers, row: int) -> Numbers:
        """The query's terms that a document holds, the rarest first."""
        both = query[np.isin(query, self._terms(row)[0])]
        order: Numbers = both[np.argsort(-self.rarity[both], kind="stable")]
        return order

    def mark(self, texts: Sequence[str], query: str, generated: str = "") -> list[list[Piece]]:
        """Split texts into pieces, and mark words that they share with a query or generated text.

        A word is marked by how much a match says: 3 for the rarest terms, 0 for function words,
        numbers, and terms in many documents of the corpus.
        """
        words = [list(_WORD.finditer(text)) for text in (query, generated, *texts)]
        stems = self._stem({match[0] for row in words for match in row})
        of_query, of_generated = (
            {stem for match in row for stem in stems[match[0]]} for row in words[:2]
        )
        weights = self._weights_of_stems(f"{query} {generated}")
        marked: dict[str, Piece] = {}
        for word in {match[0] for row in words[2:] for match in row}:
            shared = [stem for stem in stems[word] if stem in of_query or stem in of_generated]
            weight = max((weights.get(stem, 0) for stem in shared), default=0)
            if weight and is_informative(word):
                marked[word] = Piece(word, weight, not any(stem in of_query for stem in shared))
        return [_pieces(text, row, marked) for text, row in zip(texts, words[2:], strict=True)]

    def _weights_of_stems(self, text: str) -> dict[str, int]:
        """Return 1 to 3 for the terms of a text by their rarity; common ones are left out."""
        [terms] = self.queries(pa.array([text], pa.large_string()))
        documents = self._counts.shape[0]
        frequencies = np.diff(self._by_term.indptr)[terms]
        highest = float(np.log(documents + 1) - np.log(0.5))
        lowest = float(np.log(documents + 1) - np.log(_COMMON * documents + 0.5))
        weights = {}
        stems = [self._index.words.text(int(term)) for term in terms]
        for stem, term, frequency in zip(stems, terms, frequencies, strict=True):
            if frequency <= _COMMON * documents:
                share = (float(self.rarity[term]) - lowest) / max(highest - lowest, 1e-9)
                weights[stem] = 1 + min(2, int(3 * share))
        # Terms that the corpus does not hold are the rarest of all.
        known = set(stems) | {
            self._index.words.text(int(term)) for term in terms[frequencies > _COMMON * documents]
        }
        found = self._stem(match[0] for match in _WORD.finditer(text))
        for match in _WORD.finditer(text):
            for stem in found[match[0]]:
                if stem not in known:
                    weights[stem] = 3
        return weights

    def spell(self, stems: Sequence[str], text: str) -> list[str]:
        """Return terms as a text spells them; a term that the text does not hold stays a stem."""
        parts = _PART.findall(text)
        own_stems = self._stem(parts)
        spelling = {
            own_stems[part][0]: part for part in reversed(parts) if len(own_stems[part]) == 1
        }
        return [spelling.get(stem, stem) for stem in stems]

    def text(self, document_id: str) -> str | None:
        """The text of a document; None when the corpus does not hold it."""
        row = self.row(document_id)
        return None if row is None else self._texts[row].as_py() or ""

    def spell_terms(self, terms: Iterable[int], text: str) -> list[str]:
        """Terms as a text spells them, each once: a reader meets words and not stems.

        A term is spelled as the first word, or part of one, that is nothing else.
        """
        parts = _PART.findall(text)
        own = self._stem(parts)
        spelling = {own[part][0]: part for part in reversed(parts) if len(own[part]) == 1}
        stems = [self._index.words.text(int(term)) for term in terms]
        return list(dict.fromkeys(spelling.get(stem, stem) for stem in stems))

    def _stem(self, words: Iterable[str]) -> Mapping[str, list[str]]:
        """The terms of words, and of all that were asked for before."""
        new = [word for word in dict.fromkeys(words) if word not in self._stems]
        if not new:
            return self._stems
        tokens = self._analyzer.analyze(pa.array(new, type=pa.large_string()))
        self._stems.update((word, tokens.row(place)) for place, word in enumerate(new))
        return self._stems
