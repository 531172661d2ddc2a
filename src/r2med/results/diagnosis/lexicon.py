"""The terms of a corpus under Lucene's analysis, and the terms that texts share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.retrieve.bm25.analyzers import TermStream, find_analyzer
from r2med.retrieve.bm25.index import build_index
from r2med.tasks.task import Corpus

Numbers = NDArray[np.int64]
Weights = NDArray[np.float64]
#: Number of terms with the highest weights that represent the subject of a document.
KEY_TERMS = 20
#: Higher counts in a document are cut to this; only their logarithm matters.
_MOST_COUNTED = 255
#: A term in more than this share of the documents is common.
_COMMON = 0.15
_WORD = re.compile(r"[\w'’.-]*\w")
#: A word, or a part of a hyphenated word: the analysis makes a term of each.
_PART = re.compile(r"[\w'’.]*\w")


#: English words that say nothing about a subject, besides those that the analysis leaves out.
FUNCTION_WORDS = frozenset(
    Path(__file__).with_name("function_words.txt").read_text(encoding="utf-8").split()
)


def is_informative(word: str) -> bool:
    """Return whether a word is not a function word, a number or a single letter."""
    return len(word) > 1 and not word[0].isdigit() and word.lower() not in FUNCTION_WORDS


class Segment(NamedTuple):
    """A part of a text, marked if it is a word that a query shares."""

    text: str
    weight: int = 0
    """0 for unmarked text, 1 to 3 for shared words; the rarest have 3."""
    is_generated: bool = False
    """Whether only a generated text shares the word, not the query."""


def _split(
    text: str, words: Sequence[re.Match[str]], marked: Mapping[str, Segment]
) -> list[Segment]:
    """Split a text at the marked words."""
    segments, end = [], 0
    for match in words:
        if segment := marked.get(match[0]):
            if match.start() > end:
                segments.append(Segment(text[end : match.start()]))
            segments.append(segment)
            end = match.end()
    if end < len(text) or not segments:
        segments.append(Segment(text[end:]))
    return segments


class Lexicon:
    """A corpus as a matrix of documents by terms, with the rarity of each term."""

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
        """Return the document's row in the matrix; None if the corpus does not have it."""
        return self._rows.get(document_id)

    def queries(self, texts: pa.LargeStringArray) -> list[Numbers]:
        """Return the distinct terms of each text, without terms that the corpus lacks."""
        tokens = self._analyzer.analyze(texts)
        corpus_terms = self._index.find(tokens.keys)
        queries = []
        for start, end in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True):
            terms = corpus_terms[np.unique(tokens.terms[start:end])]
            queries.append(terms[terms >= 0])
        return queries

    def coverage(self, query: Numbers) -> Weights:
        """Return the share of the query's terms that each document has, weighted by rarity."""
        weights = self.rarity[query]
        if not len(weights) or weights.sum() <= 0:
            return np.zeros(self._counts.shape[0])
        has_term = self._by_term[:, query].astype(bool).astype(np.float64)
        shares: Weights = (has_term @ weights) / weights.sum()
        return shares

    def _terms(self, row: int) -> tuple[Numbers, NDArray[np.uint8]]:
        """The distinct terms of a document, and the number of occurrences of each."""
        part = slice(self._counts.indptr[row], self._counts.indptr[row + 1])
        return self._counts.indices[part], self._counts.data[part]

    def key_terms(self, row: int, query: Numbers) -> Numbers:
        """Return the terms of a document with the highest weights, without those of the query."""
        terms, counts = self._terms(row)
        is_outside = ~np.isin(terms, query)
        terms, counts = terms[is_outside], counts[is_outside]
        weights = self.rarity[terms] * (1 + np.log(counts))
        best: Numbers = terms[np.lexsort((terms, -weights))][:KEY_TERMS]
        return best

    def share(self, terms: Numbers, row: int) -> float:
        """Return the share of `terms` that a document has, weighted by rarity."""
        weights = self.rarity[terms]
        total = float(weights.sum())
        shared = float(weights[np.isin(terms, self._terms(row)[0])].sum())
        return shared / total if total > 0 else 0.0

    def likeness(self, a: int, b: int) -> float:
        """Return the Jaccard similarity of the terms of two documents."""
        first, second = self._terms(a)[0], self._terms(b)[0]
        common = len(np.intersect1d(first, second, assume_unique=True))
        union = len(first) + len(second) - common
        return common / union if union else 1.0

    def shared_terms(self, query: Numbers, row: int) -> Numbers:
        """Return the query's terms that a document has, the rarest first."""
        both = query[np.isin(query, self._terms(row)[0])]
        order: Numbers = both[np.argsort(-self.rarity[both], kind="stable")]
        return order

    def mark(
        self, texts: Sequence[str], query: str, generated: str = "", *, only_generated: bool = False
    ) -> list[list[Segment]]:
        """Split texts into segments, and mark words shared with a query or generated text.

        Use `only_generated` if the search used the generated text without the query. A word of the
        query is then marked only if the generated text has it too.

        The weight of a word is 3 for the rarest terms, and 0 for function words, numbers, and terms
        in many documents of the corpus.
        """
        words = [list(_WORD.finditer(text)) for text in (query, generated, *texts)]
        stems = self._stem({match[0] for row in words for match in row})
        of_query, of_generated = (
            {stem for match in row for stem in stems[match[0]]} for row in words[:2]
        )
        weights = self._weights_of_stems(f"{query} {generated}")
        marked: dict[str, Segment] = {}
        for word in {match[0] for row in words[2:] for match in row}:
            searched = of_generated if only_generated else of_query | of_generated
            shared = [stem for stem in stems[word] if stem in searched]
            weight = max((weights.get(stem, 0) for stem in shared), default=0)
            if weight and is_informative(word):
                is_generated = not any(stem in of_query for stem in shared)
                marked[word] = Segment(word, weight, is_generated)
        return [_split(text, row, marked) for text, row in zip(texts, words[2:], strict=True)]

    def _weights_of_stems(self, text: str) -> dict[str, int]:
        """Return weights of 1 to 3 for terms of a text, by rarity; common terms are left out."""
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
        # Terms that the corpus does not have are the rarest of all.
        corpus_stems = set(stems)
        stems_of_word = self._stem(match[0] for match in _WORD.finditer(text))
        for match in _WORD.finditer(text):
            for stem in stems_of_word[match[0]]:
                if stem not in corpus_stems:
                    weights[stem] = 3
        return weights

    def spell(self, stems: Sequence[str], text: str) -> list[str]:
        """Return stems as a text spells them; a stem that the text does not have is unchanged.

        The spelling is the first word, or part of a hyphenated word, that has only this stem.
        """
        parts = _PART.findall(text)
        stems_of_part = self._stem(parts)
        spelling = {
            stems_of_part[part][0]: part
            for part in reversed(parts)
            if len(stems_of_part[part]) == 1
        }
        return [spelling.get(stem, stem) for stem in stems]

    def text(self, document_id: str) -> str | None:
        """Return the text of a document; None if the corpus does not have it."""
        row = self.row(document_id)
        return None if row is None else self._texts[row].as_py() or ""

    def spell_terms(self, terms: Iterable[int], text: str) -> list[str]:
        """Return terms in the spelling of a text, without repetitions; see `spell`."""
        stems = [self._index.words.text(int(term)) for term in terms]
        return list(dict.fromkeys(self.spell(stems, text)))

    def _stem(self, words: Iterable[str]) -> Mapping[str, list[str]]:
        """Return the stems of each word; the mapping also has the words of earlier calls."""
        new = [word for word in dict.fromkeys(words) if word not in self._stems]
        if not new:
            return self._stems
        tokens = self._analyzer.analyze(pa.array(new, type=pa.large_string()))
        self._stems.update((word, tokens.row(row)) for row, word in enumerate(new))
        return self._stems
