"""The weights of BM25, as functions of counts: how rare a term is, how much repetition adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

Weights = NDArray[np.float64]
Counts = NDArray[np.int64]


def lucene_idf(frequencies: Counts, documents: int) -> Weights:
    """ln(N + 1) - ln(df + 0.5): never negative."""
    weights: Weights = np.log(documents + 1) - np.log(frequencies + 0.5)
    return weights


def robertson_idf(frequencies: Counts, documents: int) -> Weights:
    """The original odds, floored so that a term in over half of the documents weighs nothing."""
    odds = (documents - frequencies + 0.5) / (frequencies + 0.5)
    weights: Weights = np.log(np.maximum(odds, 1.0))
    return weights


def length_norms(lengths: ArrayLike, average: float, *, k1: float, b: float) -> Weights:
    """What a text of length L asks for half of a term's weight: k1 (1 - b + b L / average)."""
    longer = np.asarray(lengths, dtype=np.float64) / (average or 1.0)
    norms: Weights = k1 * (1.0 - b + b * longer)
    return norms


def saturation(counts: NDArray[np.integer], norms: ArrayLike) -> Weights:
    """What f occurrences are worth: f / (f + norm)."""
    weights: Weights = counts / (counts + np.asarray(norms, dtype=np.float64))
    return weights


#: Inverse document frequencies by the name that a variant gives.
IDFS: Mapping[str, Callable[[Counts, int], Weights]] = MappingProxyType(
    {"lucene": lucene_idf, "robertson": robertson_idf}
)

#: What a query is: a bag of words, or a text that is weighted as documents are.
QUERIES = ("weighted", "bag")

#: What becomes of documents without any term of the query: they fill the run, or are left out.
UNMATCHED = ("fill", "drop")
