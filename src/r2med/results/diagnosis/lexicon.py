"""What the words say: terms of a corpus under Lucene's analysis, and who shares which."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.retrieve.bm25.analyzers import find_analyzer
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


class Lexicon:
    """A corpus as a matrix of documents by terms, each weighted by how rare it is."""

    def __init__(self, corpus: Corpus) -> None:
        from scipy.sparse import csc_array  # takes longer to import than most commands

        self._analyzer = find_analyzer("lucene")
        names = corpus.document_ids.to_pylist()
        repeated = len(names) < len(corpus)
        self._texts = corpus.texts.take(pa.array(corpus.last_rows)) if repeated else corpus.texts
        self._index = build_index(self._analyzer.grouped(self._texts))
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

    def shared(self, query: Numbers, row: int) -> Numbers:
        """The query's terms that a document holds, the rarest first."""
        both = query[np.isin(query, self._terms(row)[0])]
        order: Numbers = both[np.argsort(-self.rarity[both], kind="stable")]
        return order

    def matched(self, query: str, texts: Sequence[str]) -> list[list[str]]:
        """Texts in pieces, of which every second is a word that it shares with a query.

        Terms that so many documents hold that a match says little are not marked.
        """
        words = [list(_WORD.finditer(text)) for text in (query, *texts)]
        distinct = {match[0] for row in words for match in row}
        stems = self._stemmed(distinct)
        asked = {stem for match in words[0] for stem in stems[match[0]]}
        [terms] = self.queries(pa.array([query], pa.large_string()))
        frequencies = np.diff(self._by_term.indptr)[terms]
        common = terms[frequencies > _COMMON * self._counts.shape[0]]
        asked.difference_update(self._index.words.text(int(term)) for term in common)
        hits = {word for word in distinct if not asked.isdisjoint(stems[word])}
        pieces = []
        for text, row in zip(texts, words[1:], strict=True):
            edges = [edge for match in row if match[0] in hits for edge in match.span()]
            pieces.append([text[start:end] for start, end in pairwise([0, *edges, len(text)])])
        return pieces

    def text(self, document_id: str) -> str | None:
        """The text of a document; None when the corpus does not hold it."""
        row = self.row(document_id)
        return None if row is None else self._texts[row].as_py() or ""

    def spelled(self, terms: Iterable[int], text: str) -> list[str]:
        """Terms as a text spells them, each once: a reader meets words and not stems.

        A term is spelled as the first word, or part of one, that is nothing else.
        """
        parts = _PART.findall(text)
        own = self._stemmed(parts)
        spelling = {own[part][0]: part for part in reversed(parts) if len(own[part]) == 1}
        stems = [self._index.words.text(int(term)) for term in terms]
        return list(dict.fromkeys(spelling.get(stem, stem) for stem in stems))

    def _stemmed(self, words: Iterable[str]) -> Mapping[str, list[str]]:
        """The terms of words, and of all that were asked for before."""
        new = [word for word in dict.fromkeys(words) if word not in self._stems]
        tokens = self._analyzer.analyze(pa.array(new, type=pa.large_string()))
        self._stems.update((word, tokens.row(place)) for place, word in enumerate(new))
        return self._stems
