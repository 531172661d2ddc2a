"""Stems for a vocabulary of any mix of words: sorted by length into matrices, stemmed, put back."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.bm25.analysis.byte_words import ByteWords
from r2med.retrieve.bm25.analysis.porter import Dialect, stem
from r2med.retrieve.bm25.analysis.word_matrix import WordMatrix

Places = NDArray[np.int64]

_WIDTHS = (8, 12, 16, 24, 48, 256)
"""Matrix widths: words up to one of these lengths are stemmed together."""


def stem_ascii(words: ByteWords, dialect: Dialect) -> ByteWords:
    """Stem lower-case ASCII words."""
    data = words.data.copy()
    lengths = words.lengths
    last = data[words.offsets[1:] - 1]
    stemmable = (lengths > 2) & (last >= ord("a")) & (last <= ord("z"))
    edges = [2, *_WIDTHS, max(int(lengths.max(initial=0)), _WIDTHS[-1])]
    for shortest, width in pairwise(edges):
        chosen = np.flatnonzero(stemmable & (lengths > shortest) & (lengths <= width))
        if len(chosen):
            lengths[chosen] = _stem_matrix(data, words.offsets[chosen], lengths[chosen], dialect)
    return ByteWords.cut(data, words.offsets[:-1], words.offsets[:-1] + lengths)


def _stem_matrix(
    data: NDArray[np.uint8], starts: Places, lengths: Places, dialect: Dialect
) -> Places:
    """Stem words of like length where they stand; return their new lengths.

    A stem is never longer than its word: a restored `e` takes the place of -ed or -ing.
    """
    width = int(lengths.max())
    position = np.arange(width)[:, None]
    places = starts + position
    matrix = WordMatrix(data[np.minimum(places, len(data) - 1)], lengths.copy())
    stem(matrix, dialect)
    inside = position < matrix.lengths
    data[places[inside]] = matrix.letters[inside]
    return matrix.lengths


def stem_text(words: list[str], dialect: Dialect) -> list[str]:
    """Stem lower-case words of any script, in UTF-16 units as Java sees them."""
    if not words:
        return []
    units = [np.frombuffer(word.encode("utf-16-le"), dtype="<u2") for word in words]
    lengths = np.array([len(word) for word in units], dtype=np.int64)
    letters = np.zeros((int(lengths.max()), len(words)), dtype=np.uint16)
    for row, word in enumerate(units):
        letters[: len(word), row] = word
    matrix = WordMatrix(letters, lengths)
    stem(matrix, dialect)
    return [
        matrix.letters[: matrix.lengths[row], row].tobytes().decode("utf-16-le")
        for row in range(len(words))
    ]
