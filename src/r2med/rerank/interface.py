"""What a reranker promises: a score for every candidate of every list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

ListScores = NDArray[np.float32]


@dataclass(frozen=True)
class Candidates:
    """One query with the documents that a first stage found for it, best first."""

    query_id: str
    query: str
    document_ids: Sequence[str]
    documents: Sequence[str]


class Reranker(Protocol):
    """A configured reranker; nothing is loaded before `scores` is called."""

    @property
    def identity(self) -> Mapping[str, object]:
        """Everything that decides its scores, as JSON values; results are keyed by it."""
        ...

    def scores(self, lists: Sequence[Candidates]) -> list[ListScores]:
        """For each list a finite score for each of its documents, higher is better."""
        ...

    def facts(self) -> Mapping[str, object]:
        """What really ran, as JSON values: costs, reuse, answers that could not be read."""
        ...
