"""A retriever that compares letter counts: what a backend has to provide, and nothing more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from r2med import Run

if TYPE_CHECKING:
    from r2med import Queries, Resources, Task


@dataclass(frozen=True)
class LetterSettings:
    """The settings of an entry; all of them are options, as in `letter-counts[alphabet=aeiou]`."""

    alphabet: str


def build(settings: LetterSettings, resources: Resources) -> LetterRetriever:
    """Build the retriever of an entry."""
    return LetterRetriever(settings)


@dataclass(frozen=True)
class LetterRetriever:
    """A configured retriever, not yet bound to a corpus."""

    settings: LetterSettings

    @property
    def identity(self) -> Mapping[str, object]:
        """What decides rankings besides the settings: raise it when the computation changes."""
        return {"letters": 1}

    def prepare(self, task: Task) -> LetterSearcher:
        """Count the letters of every document."""
        return LetterSearcher(self.settings, task)


class LetterSearcher:
    """A corpus whose letters are counted."""

    def __init__(self, settings: LetterSettings, task: Task) -> None:
        self._settings = settings
        self._document_ids = task.corpus.ids.to_pylist()
        self._counts = _letter_shares(task.corpus.texts.to_pylist(), settings.alphabet)

    def search(self, queries: Queries, *, depth: int) -> Run:
        """Rank documents by the cosine similarity of letter counts."""
        counts = _letter_shares(queries.texts.to_pylist(), self._settings.alphabet)
        rankings: dict[str, list[tuple[str, float]]] = {}
        for query_id, scores in zip(queries.ids.to_pylist(), counts @ self._counts.T, strict=True):
            best = np.argsort(-scores, kind="stable")[:depth]
            rankings[query_id] = [(self._document_ids[i], float(scores[i])) for i in best]
        return Run.from_lists(rankings)

    def facts(self) -> Mapping[str, object]:
        """What is recorded with the result."""
        return {"documents": len(self._document_ids)}


def _letter_shares(texts: Iterable[str], alphabet: str) -> NDArray[np.float64]:
    counts = np.array([[text.lower().count(letter) for letter in alphabet] for text in texts])
    lengths = np.linalg.norm(counts, axis=1, keepdims=True)
    shares: NDArray[np.float64] = counts / np.maximum(lengths, 1e-12)
    return shares
